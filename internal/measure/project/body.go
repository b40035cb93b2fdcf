package project

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// judge refuses a value of a request's body. The error says why, for a person. A field that is null
// is as if it weren't there, and isn't judged, except by those that demand something.
type judge func(*guard, any) error

// fields are those that an object may have.
type fields map[string]judge

// demanded are those that a request that makes something must have, if it can have them: without
// them the API would choose.
func demanded() []string {
	return []string{"name", "labels", "server_type", "load_balancer_type", "type"}
}

// complete refuses an object in which a demanded field is missing.
func (f fields) complete(object map[string]any) error {
	for _, name := range demanded() {
		if _, can := f[name]; !can {
			continue
		}
		if _, has := object[name]; !has {
			return fmt.Errorf("field %q is missing", name)
		}
	}
	return nil
}

// judge judges each field. One that isn't known is refused: nobody knows what it would change.
func (f fields) judge(g *guard, object map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		judge, known := f[name]
		if !known {
			return fmt.Errorf("field %q is none that a run may send", name)
		}
		if err := judge(g, object[name]); err != nil {
			return fmt.Errorf("field %q: %w", name, err)
		}
	}
	return nil
}

// readBody reads a request's body: one object, or nothing. Numbers stay as they are written.
func readBody(r io.ReadCloser) (map[string]any, error) {
	if r == nil {
		return nil, nil
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxBody))
	if err != nil {
		return nil, fmt.Errorf("reading its body: %w", err)
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || object == nil {
		return nil, errors.New("its body is no JSON object")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("its body is more than one JSON object")
	}
	return object, nil
}

// anything is for values that lead to no other resource.
func anything(*guard, any) error { return nil }

// nothing is for fields that would lead to resources that are never the run's.
func nothing(_ *guard, value any) error {
	switch v := value.(type) {
	case nil:
		return nil
	case []any:
		if len(v) == 0 {
			return nil
		}
	}
	return errors.New("leads to what isn't the run's")
}

// only demands one of some words.
func only(words ...string) judge {
	return func(_ *guard, value any) error {
		if text, isText := value.(string); isText && slices.Contains(words, text) {
			return nil
		}
		return fmt.Errorf("must be one of %s", strings.Join(words, ", "))
	}
}

// object judges the fields of an object.
func object(f fields) judge {
	return func(g *guard, value any) error {
		if value == nil {
			return nil
		}
		object, is := value.(map[string]any)
		if !is {
			return errors.New("must be an object")
		}
		return f.judge(g, object)
	}
}

// all judges each element of an array.
func all(each judge) judge {
	return func(g *guard, value any) error {
		if value == nil {
			return nil
		}
		array, is := value.([]any)
		if !is {
			return errors.New("must be an array")
		}
		for _, element := range array {
			if err := each(g, element); err != nil {
				return err
			}
		}
		return nil
	}
}

// ours demands the ID of something that the run has made.
func ours(k kind) judge {
	return func(g *guard, value any) error {
		if value == nil {
			return nil
		}
		id, err := integer(value)
		if err != nil {
			return err
		}
		if !g.owns(ref{k, id}) {
			return fmt.Errorf("%s %d was not made by this run", k, id)
		}
		return nil
	}
}

// integer reads an ID. Other ways to write a number are refused, since the API might read them
// otherwise.
func integer(value any) (int64, error) {
	number, is := value.(json.Number)
	if !is {
		return 0, errors.New("must be an ID")
	}
	return canonicalID(number.String())
}

// canonicalID reads an ID in decimal digits without anything before them.
func canonicalID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 || strconv.FormatInt(id, 10) != text {
		return 0, fmt.Errorf("%q is no ID", text)
	}
	return id, nil
}

// ourLabels demands the run's label, whatever others there are.
func ourLabels(g *guard, value any) error {
	labels, _ := value.(map[string]any)
	if run, _ := labels[Label].(string); run != g.run {
		return fmt.Errorf("must have the label %s=%s", Label, g.run)
	}
	return nil
}

// ourName demands a name that begins with the run's.
func ourName(g *guard, value any) error {
	if name, _ := value.(string); !strings.HasPrefix(name, namesOf(g.run)) {
		return fmt.Errorf("must begin with %s", namesOf(g.run))
	}
	return nil
}

func plannedServerType(g *guard, value any) error {
	return plannedType(value, g.plan.ServerType)
}

func plannedLoadBalancerType(g *guard, value any) error {
	return plannedType(value, g.plan.LoadBalancerType)
}

// plannedType demands the type whose price is known, by its name.
func plannedType(value any, planned string) error {
	if name, _ := value.(string); planned == "" || name != planned {
		return fmt.Errorf("must be %q, the type of the plan, by its name", planned)
	}
	return nil
}

// plannedLocation demands the location whose prices are known.
func plannedLocation(g *guard, value any) error {
	if name, _ := value.(string); g.plan.Location != "" && name != g.plan.Location {
		return fmt.Errorf("must be %q, the location of the plan", g.plan.Location)
	}
	return nil
}

// plannedVSwitch demands the one vSwitch that the user has named.
func plannedVSwitch(g *guard, value any) error {
	if value == nil {
		return nil
	}
	id, err := integer(value)
	if err != nil {
		return err
	}
	if id != g.plan.VSwitch {
		return fmt.Errorf("vSwitch %d is none that the plan names", id)
	}
	return nil
}

// plannedAddress demands an address of the user's dedicated server, or one that nobody outside of
// a network has: load balancers connect to their targets.
func plannedAddress(g *guard, value any) error {
	if value == nil {
		return nil
	}
	text, _ := value.(string)
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("%q is no address", text)
	}
	if ip.Is4() && ip.IsPrivate() {
		return nil
	}
	for _, p := range g.plan.Dedicated {
		if p.Contains(ip) {
			return nil
		}
	}
	return fmt.Errorf("%s is no address of the dedicated server that the plan names", ip)
}
