package lb

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// AnnotationPorts has options of single ports, as a JSON object: its keys are ports of the
// Service, by number or name, its values objects of options. An option that is missing there is
// set by the other annotations, for all ports.
const AnnotationPorts = OwnPrefix + "ports"

// PortOptions returns the annotations with an Option.
func PortOptions() []Annotation { return new(settings).options() }

func (s *settings) options() []Annotation {
	return slices.DeleteFunc(s.annotations(), func(a Annotation) bool { return a.Option == "" })
}

const (
	pathCertificates = "certificates"
	pathHealthCheck  = "healthCheck"
	pathCheckMode    = "healthCheck.mode"
)

// longestPorts limits the annotation, in bytes. It has room for every option of 30 ports, the most
// that a load balancer has. The API server allows 256 KiB for all annotations, and parsing that
// much would let a Service's author keep the controller busy.
const longestPorts = 32 << 10

// portOptions reads [AnnotationPorts] into the settings of the ports in it.
func (p *parser) portOptions() {
	text := p.svc.Annotations[AnnotationPorts]
	switch {
	case text == "":
		return
	case len(text) > longestPorts:
		p.refusePorts("", text,
			"%d bytes are too long: set at most %d, without spaces and options that repeat what "+
				"holds for all ports anyway", len(text), longestPorts)
		return
	}
	var ports map[string]map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	err := decoder.Decode(&ports)
	if _, end := decoder.Token(); err == nil && (ports == nil || !errors.Is(end, io.EOF)) {
		err = errors.New("it is empty, or something follows it")
	}
	if err != nil {
		p.refusePorts("", text, "not a JSON object of ports with objects of options (%v): "+
			`set one such as {"443":{"protocol":"https"}}`, err)
		return
	}
	p.byPort = make(map[int]settings, len(ports))
	for _, key := range slices.Sorted(maps.Keys(ports)) {
		port, err := p.portNamed(key)
		if _, twice := p.byPort[port.Number]; err == nil && twice {
			err = fmt.Errorf("port %d is named twice: put its options into one object", port.Number)
		}
		if err != nil {
			p.refusePorts(key, "", "%v", err)
			continue
		}
		p.byPort[port.Number] = p.optionsOf(port, ports[key])
	}
}

// refusePorts refuses the value at a path of the annotation; "" is the whole annotation.
func (p *parser) refusePorts(path, value, format string, args ...any) {
	field := strings.TrimSpace(AnnotationPorts + " " + path)
	p.refuse(ReasonInvalid, field, value, format, args...)
}

func (p *parser) portNamed(key string) (Port, error) {
	known, carried := []string{}, true
	for _, port := range p.svc.Ports {
		switch named := key == strconv.Itoa(port.Number) || key != "" && key == port.Name; {
		case !named:
		case port.Protocol == "TCP":
			return port, nil
		default:
			carried = false
		}
		known = append(known, strconv.Itoa(port.Number))
	}
	if !carried {
		return Port{}, errors.New("the cloud's load balancers carry TCP only, " +
			"so this port has no options: remove them")
	}
	return Port{}, fmt.Errorf("the Service has no such port: name one of %s",
		strings.Join(slices.Compact(known), ", "))
}

func (p *parser) optionsOf(port Port, options map[string]any) settings {
	if nested, ok := options[pathHealthCheck].(map[string]any); ok {
		options = maps.Clone(options)
		delete(options, pathHealthCheck)
		for key, value := range nested {
			options[pathHealthCheck+"."+key] = value
		}
	}
	s := p.set
	if _, ok := options[pathCheckMode]; ok {
		// The port's mode overrides the check that annotations configure for all ports.
		s.listener.Check = s.listener.Check.pace()
	}
	known, paths := make(map[string]Annotation), []string{}
	for _, option := range s.options() {
		known[option.Option], paths = option, append(paths, option.Option)
	}
	for _, path := range slices.Sorted(maps.Keys(options)) {
		value := optionText(options[path])
		option, ok := known[path]
		var err error
		switch {
		case !ok:
			err = fmt.Errorf("no such option: did you mean %s?", nearest(path, paths))
		case value == "":
			err = errors.New("set a text, a number, true or false, a list of these, or leave it out")
		default:
			err = option.set(value)
		}
		if err != nil {
			p.refusePorts(fmt.Sprintf("%d.%s", port.Number, path), value, "%v", err)
		}
		s.ownCertificates = s.ownCertificates || path == pathCertificates
	}
	return s
}

// optionText returns an option's JSON value in the format of its annotation; "" if there is none.
func optionText(value any) string {
	switch value := value.(type) {
	case string, bool, json.Number:
		return fmt.Sprint(value)
	case []any:
		var texts []string
		for _, item := range value {
			text := optionText(item)
			if text == "" {
				return ""
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, ",")
	}
	return ""
}

func (p *parser) at(port Port) settings {
	if s, ok := p.byPort[port.Number]; ok {
		return s
	}
	return p.set
}

func (p *parser) atPorts() []settings {
	all := make([]settings, len(p.served))
	for i, port := range p.served {
		all[i] = p.at(port)
	}
	return all
}
