package lb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// AnnotationPorts has options of single ports, as a JSON object: its keys are ports of the
// Service, by number or name, its values objects of options. An option that is missing there is
// set by the other annotations, for all ports.
const AnnotationPorts = OwnPrefix + "ports"

// PortOptions returns the annotations with an Option; a choice has type text there.
func PortOptions() (options []Annotation) {
	for _, row := range Annotations() {
		if row.Type == "choice" {
			row.Type = "text"
		}
		if row.Option != "" {
			options = append(options, row)
		}
	}
	return options
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
	ports, err := decodeObject([]byte(text))
	if err != nil {
		p.refusePorts("", text, `not a JSON object of ports (%v): set one such as {"443":{"protocol":"https"}}`, err)
		return
	}
	p.byPort = make(map[int]settings, len(ports))
	for _, m := range ports {
		port, err := p.portNamed(m.key)
		if _, twice := p.byPort[port.Number]; err == nil && twice {
			err = fmt.Errorf("port %d is named twice: put its options into one object", port.Number)
		}
		var options []member
		if err == nil {
			if m.value[0] != '{' {
				err = errors.New(`a port has an object of options: set one such as {"protocol":"https"}`)
			} else {
				options, err = decodeObject(m.value)
			}
		}
		if err != nil {
			p.refusePorts(m.key, m.shown(), "%v", err)
			continue
		}
		p.byPort[port.Number] = p.optionsOf(port, options)
	}
}

// refusePorts refuses the value at a path of the annotation; "" is the whole annotation.
func (p *parser) refusePorts(path, value, format string, args ...any) {
	p.refuse(ReasonInvalid, strings.TrimSpace(AnnotationPorts+" "+path), value, format, args...)
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
		return Port{}, errors.New("the cloud's load balancers carry TCP only, so this port has no options: remove them")
	}
	return Port{}, fmt.Errorf("the Service has no such port: name one of %s", strings.Join(slices.Compact(known), ", "))
}

func (p *parser) optionsOf(port Port, options []member) settings {
	key := strconv.Itoa(port.Number)
	given := make(map[string]member)
	for _, o := range options {
		switch group, path, dotted := strings.Cut(o.key, "."); {
		case dotted: // the nested object is the only way to set it
			p.refusePorts(key+"."+o.key, o.shown(), `a key has no dot: set an object, "%s":{"%s":…}`, group, path)
		case o.key != pathHealthCheck:
			given[o.key] = o
		default:
			nested, err := decodeObject(o.value)
			if o.value[0] != '{' {
				err = errors.New(`set an object of options such as {"port":8080}`)
			}
			if err != nil {
				p.refusePorts(key+"."+o.key, o.shown(), "%v", err)
			}
			for _, n := range nested {
				given[o.key+"."+n.key] = n
			}
		}
	}
	s := p.set
	if _, ok := given[pathCheckMode]; ok {
		// The port's mode overrides the check that annotations configure for all ports.
		s.listener.Check = s.listener.Check.pace()
	}
	var paths []string
	for _, option := range PortOptions() {
		paths = append(paths, option.Option)
		value, ok := given[option.Option]
		if !ok {
			continue
		}
		delete(given, option.Option)
		text, err := option.text(value.value)
		if err == nil {
			err = option.set(&s, text)
		}
		if err != nil {
			p.refusePorts(key+"."+option.Option, value.shown(), "%v", err)
		}
		s.ownCertificates = s.ownCertificates || option.Option == pathCertificates
		s.given = append(s.given, option)
	}
	for _, path := range slices.Sorted(maps.Keys(given)) {
		p.refusePorts(key+"."+path, given[path].shown(), "no such option: did you mean %s?", nearest(path, paths))
	}
	return s
}

func (p *parser) idlePortOptions() {
	for _, number := range slices.Sorted(maps.Keys(p.byPort)) {
		s := p.byPort[number]
		for _, option := range s.given {
			if option.idle == nil {
				continue
			}
			if why, _ := option.idle(s); why != "" {
				field := fmt.Sprintf("%s %d.%s", AnnotationPorts, number, option.Option)
				p.warn(ReasonNoEffect, field, "", "%s: leave it out, or change that", why)
			}
		}
	}
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

// atEach returns the settings of all TCP ports, or those for all ports if there is no TCP port.
func (p *parser) atEach() (all []settings) {
	for _, port := range p.svc.Ports {
		if port.Protocol == "TCP" {
			all = append(all, p.at(port))
		}
	}
	if len(all) == 0 {
		return []settings{p.set}
	}
	return all
}

// text returns an option's JSON value in the format of its annotation.
func (a Annotation) text(value json.RawMessage) (string, error) {
	kind := map[byte]string{'"': "text", 't': "boolean", 'f': "boolean", '[': "list", '{': "object", 'n': "null"}[value[0]]
	if kind == "" {
		kind = "integer"
	}
	switch {
	case kind != a.Type && (a.Type != "duration" || kind != "text" && kind != "integer"):
		return "", fmt.Errorf("set %s", map[string]string{
			"boolean": "true or false, without quotes", "integer": "a number, without quotes", "text": "a text in quotes",
			"list": "a list in brackets", "duration": `seconds, as 10 or "10s"`,
		}[a.Type])
	case kind != "list":
		value = slices.Concat([]byte("["), value, []byte("]"))
	}
	var items []json.RawMessage
	if err := json.Unmarshal(value, &items); err != nil {
		return "", err
	}
	var texts []string
	for _, item := range items {
		text := member{value: item}.shown()
		switch c := item[0]; {
		case kind == "list" && c != '"' && c != '-' && (c < '0' || c > '9'):
			return "", errors.New("set texts in quotes, or numbers, between commas")
		case kind == "list" && strings.Contains(text, ","):
			return "", fmt.Errorf("%q holds a comma: set values without one", text)
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 || kind != "list" && texts[0] == "" {
		return "", errors.New("set a value, or leave it out")
	}
	return strings.Join(texts, ","), nil
}

type member struct {
	key   string
	value json.RawMessage
}

// decodeObject parses a JSON object. Unlike package json it refuses a duplicate key, because one
// of the values would be ignored.
func decodeObject(text []byte) (members []member, err error) {
	if !json.Valid(text) {
		return nil, json.Unmarshal(text, new(any))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if start, _ := d.Token(); start != json.Delim('{') {
		return nil, errors.New("it does not begin with {")
	}
	for d.More() {
		token, _ := d.Token()
		m := member{key: token.(string)}
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(members, func(other member) bool { return other.key == m.key }) {
			return nil, fmt.Errorf("%q is there twice", m.key)
		}
		members = append(members, m)
	}
	return members, nil
}

func (m member) shown() string {
	var text string
	switch {
	case json.Unmarshal(m.value, &text) == nil && m.value[0] == '"':
		return text
	case m.value[0] == '{':
		return "{…}"
	}
	return string(m.value)
}
