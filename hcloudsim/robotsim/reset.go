package robotsim

import "slices"

const (
	resetPower     = "power"
	resetPowerLong = "power_long"
	resetSoftware  = "sw"
	resetHardware  = "hw"
	resetManual    = "man"
)

// resetBody lists the reset options of a server; a listing omits the operating status.
type resetBody struct {
	IP      *string  `json:"server_ip"`
	IPv6Net *string  `json:"server_ipv6_net"`
	Number  int64    `json:"server_number"`
	Types   []string `json:"type"`
	Status  string   `json:"operating_status,omitempty"`
}

type resetDone struct {
	IP      *string `json:"server_ip"`
	IPv6Net *string `json:"server_ipv6_net"`
	Number  int64   `json:"server_number"`
	Type    string  `json:"type"`
}

func (s *server) resetBody() resetBody {
	return resetBody{IP: s.mainIP(), IPv6Net: s.mainNet(), Number: s.number, Types: s.resets}
}

func (c *call) listResets() (reply, error) {
	var out []map[string]resetBody
	for _, s := range half(c.fault, c.servers) {
		if len(s.resets) > 0 {
			out = append(out, map[string]resetBody{"reset": s.resetBody()})
		}
	}
	if len(out) == 0 {
		return reply{}, refusal(codeNotFound, "No servers with reset option found")
	}
	return reply{body: out}, nil
}

// resettable returns the server in the path, or an error if it has no reset options.
func (c *call) resettable() (*server, *Error) {
	s, err := c.named()
	if err == nil && len(s.resets) == 0 {
		err = refusal(codeResetUnavailable, "The server has no reset option")
	}
	return s, err
}

func (c *call) getReset() (reply, error) {
	s, err := c.resettable()
	if err != nil {
		return reply{}, err
	}
	body := s.resetBody()
	body.Status = s.power
	return reply{body: map[string]resetBody{"reset": body}}, nil
}

func (c *call) reset() (reply, error) {
	s, err := c.resettable()
	if err != nil {
		return reply{}, err
	}
	kind := c.form.Get("type")
	switch {
	case kind == "":
		return reply{}, errMissing("type")
	case !slices.Contains(s.resets, kind):
		return reply{}, errInvalid("type")
	case s.manual && kind == resetManual:
		return reply{}, refusal(codeResetManual, "There is already a running manual reset")
	}
	s.apply(kind)
	return reply{body: map[string]resetDone{"reset": {s.mainIP(), s.mainNet(), s.number, kind}}}, nil
}

func (s *server) apply(kind string) {
	if kind == resetManual {
		s.manual = true // no technician ever performs it
		return
	}
	switch {
	case s.power == powerUnsupported:
	case kind == resetPowerLong, kind == resetPower && s.power == powerRunning:
		s.power = powerOff
	default:
		s.power = powerRunning
	}
}
