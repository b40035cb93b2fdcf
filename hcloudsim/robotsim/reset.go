package robotsim

import "slices"

// Ways to reset a server.
const (
	resetPower     = "power"
	resetPowerLong = "power_long"
	resetSoftware  = "sw"
	resetHardware  = "hw"
	resetManual    = "man"
)

// resetBody is how a server can be reset; a listing leaves its status out.
type resetBody struct {
	IP      *string  `json:"server_ip"`
	IPv6Net *string  `json:"server_ipv6_net"`
	Number  int64    `json:"server_number"`
	Types   []string `json:"type"`
	Status  string   `json:"operating_status,omitempty"`
}

// resetDone is the answer to a reset.
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

// resettable is the server that the path names, if it can be reset.
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
		s.manual = true // a technician's, who never comes
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
