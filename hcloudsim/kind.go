package hcloudsim

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// kind describes one kind of resource: its operations that are alike for all kinds, and in which
// they differ.
type kind[R resource] struct {
	name, plural string // in bodies and paths, such as server and servers
	rows         func(*project) *table[R]
	body         func(*project, R) any

	// filters are the query parameters of the list, except name and label_selector.
	filters  map[string]filter[R]
	unnamed  bool // the list can't be sorted by name
	nameRule func(string) error

	// editableAlways allows PUT while an action holds the resource.
	editableAlways bool
	// edit applies the fields of PUT other than name and labels, or returns an error.
	edit func(R, updateRequest) error
	// mayProtect returns an error if the resource can't be protected against deletion.
	mayProtect func(R) error
	// mayDelete returns an error if the resource is in use.
	mayDelete func(*project, R) error
	// drop removes the resource from the project; nil: only from its table.
	drop func(*project, R)
	// remove deletes the resource by an action; nil: drop does, without an action.
	remove func(*call, R) (reply, error)
}

// filter selects resources by a value; values are those that the parameter may have, nil: any.
type filter[R resource] struct {
	of     func(R) string
	values []string
}

// updateRequest has the fields of the PUT requests of all kinds.
type updateRequest struct {
	Name         *string            `json:"name"`
	Labels       *map[string]string `json:"labels"`
	Description  *string            `json:"description"`
	Type         *string            `json:"type"`
	AutoDelete   *bool              `json:"auto_delete"`
	ExposeRoutes *bool              `json:"expose_routes_to_vswitch"`
}

// actionRow is an operation POST /{plural}/{id}/actions/{name}.
type actionRow struct {
	name string
	do   endpoint
}

// operations returns the rows of the kind. Only kinds with actions have listings of them.
func (k kind[R]) operations(create endpoint, actions ...actionRow) []operation {
	all := "/" + k.plural
	one := all + "/{id}"
	rows := []operation{{"GET", all, k.list}}
	if create != nil {
		rows = append(rows, operation{"POST", all, create})
	}
	rows = append(rows, k.view("", func(c *call, r R) (reply, error) {
		return ok(http.StatusOK, k.name, k.body(c.project, r))
	}), operation{"PUT", one, k.update}, operation{"DELETE", one, k.delete})
	for _, a := range actions {
		rows = append(rows, operation{"POST", one + "/actions/" + a.name, a.do})
	}
	if len(actions) == 0 {
		return rows
	}
	return append(rows,
		operation{"GET", all + "/actions", func(c *call) (reply, error) {
			return c.replyActions(func(a *action) bool { return a.isAboutKind(k.name) })
		}},
		operation{"GET", all + "/actions/{id}", getAction(k.name, "id")},
		// Actions outlive their resource, but are no longer found under it.
		k.view("/actions", func(c *call, r R) (reply, error) {
			return c.replyActions(func(a *action) bool { return slices.Contains(a.about, k.ref(r)) })
		}),
		operation{"GET", one + "/actions/{action_id}", getAction(k.name, "action_id")})
}

func (k kind[R]) ref(r R) ref { return ref{k.name, r.common().id} }

// found returns the resource with the ID in the path.
func (k kind[R]) found(c *call) (R, error) {
	id, err := c.pathID("id")
	if err != nil {
		var none R
		return none, err
	}
	return must(k.rows(c.project), k.name, id)
}

// view returns an operation that reads a resource.
func (k kind[R]) view(below string, do func(*call, R) (reply, error)) operation {
	return operation{"GET", "/" + k.plural + "/{id}" + below, func(c *call) (reply, error) {
		r, err := k.found(c)
		if err != nil {
			return reply{}, err
		}
		return do(c, r)
	}}
}

func (k kind[R]) list(c *call) (reply, error) {
	chosen, err := selected(c, k.rows(c.project))
	if err != nil {
		return reply{}, err
	}
	query := c.request.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(k.filters)) {
		f := k.filters[name]
		if f.values != nil {
			if err := oneOf(query, name, f.values...); err != nil {
				return reply{}, err
			}
		}
		chosen = slices.DeleteFunc(chosen, func(r R) bool { return !allows(query[name], f.of(r)) })
	}
	by := order[R]{
		"id":      func(a, b R) int { return cmp.Compare(a.common().id, b.common().id) },
		"name":    func(a, b R) int { return strings.Compare(a.common().name, b.common().name) },
		"created": func(a, b R) int { return a.common().created.Compare(b.common().created) },
	}
	if k.unnamed {
		delete(by, "name")
	}
	return list(c, k.plural, chosen, by, func(r R) any { return k.body(c.project, r) })
}

// new validates the name and the labels of a new resource, which gets its ID later.
func (k kind[R]) new(p *project, name string, labels *map[string]string) (base, error) {
	quota := cmp.Or(p.opts.Quotas[k.name], Unlimited)
	if exceeds(len(k.rows(p).rows), quota) {
		return base{}, errLimit(k.name+"_limit", quota)
	}
	if err := k.checkName(p, name, 0); err != nil {
		return base{}, err
	}
	valid, err := newLabels(labels)
	return base{name: name, labels: valid}, err
}

// checkName validates the name of the resource with the ID self, 0 for a new one.
func (k kind[R]) checkName(p *project, name string, self int64) error {
	rule := k.nameRule
	if rule == nil {
		rule = checkName
	}
	if err := rule(name); err != nil {
		return err
	}
	for _, other := range k.rows(p).rows {
		if other.common().name == name && other.common().id != self {
			return errTaken("name", "name")
		}
	}
	return nil
}

func (k kind[R]) update(c *call) (reply, error) {
	r, req, err := request[R, updateRequest](c, k)
	if err == nil && !k.editableAlways {
		err = c.idle(k.ref(r))
	}
	if err == nil && req.Name != nil {
		err = k.checkName(c.project, *req.Name, r.common().id)
	}
	if err == nil && req.Labels != nil {
		err = checkLabels(*req.Labels)
	}
	if err == nil && k.edit != nil {
		err = k.edit(r, req)
	}
	if err != nil {
		return reply{}, err
	}
	set(&r.common().name, req.Name)
	if req.Labels != nil {
		r.common().labels = cloneLabels(*req.Labels)
	}
	return ok(http.StatusOK, k.name, k.body(c.project, r))
}

func (k kind[R]) delete(c *call) (reply, error) {
	r, err := k.found(c)
	if err != nil {
		return reply{}, err
	}
	if r.common().protected {
		return reply{}, errProtected(k.name)
	}
	err = c.idle(k.ref(r))
	if k.mayDelete != nil {
		err = cmp.Or(k.mayDelete(c.project, r), err)
	}
	switch {
	case err != nil:
		return reply{}, err
	case k.remove != nil:
		return k.remove(c, r)
	case k.drop != nil:
		k.drop(c.project, r)
	default:
		k.rows(c.project).remove(r.common().id)
	}
	return reply{status: http.StatusNoContent}, nil
}

// create returns the operation POST /{plural}: add validates a request and adds the resource. It
// returns the fields of the reply other than the resource.
func create[R resource, Q any](
	k kind[R], add func(*call, Q) (R, map[string]any, error),
) endpoint {
	return func(c *call) (reply, error) {
		req, err := decode[Q](c)
		if err != nil {
			return reply{}, err
		}
		r, more, err := add(c, req)
		if err != nil {
			return reply{}, err
		}
		body := map[string]any{k.name: k.body(c.project, r)}
		maps.Copy(body, more)
		return reply{status: http.StatusCreated, body: body}, nil
	}
}

// protection is the action that protects a resource against deletion.
func (k kind[R]) protection() actionRow {
	type protectRequest struct{ Delete *bool }
	return on(k, "change_protection", func(_ *call, r R, req protectRequest) (change, error) {
		protected := r.common().protected
		if set(&protected, req.Delete); protected && k.mayProtect != nil {
			if err := k.mayProtect(r); err != nil {
				return change{}, err
			}
		}
		return change{
			command: "change_protection",
			finish:  func() { r.common().protected = protected },
		}, nil
	})
}

// request parses a request about the resource in the path.
func request[R resource, Q any](c *call, k kind[R]) (r R, req Q, err error) {
	if r, err = k.found(c); err != nil {
		return r, req, err
	}
	if _, empty := any(req).(struct{}); !empty {
		req, err = decode[Q](c)
	}
	return r, req, err
}

// exclusive returns an action of a kind that requires its resource to be idle.
func exclusive[R resource, Q any](
	k kind[R], name string, do func(*call, R, Q) (reply, error),
) actionRow {
	return actionRow{name, func(c *call) (reply, error) {
		r, req, err := request[R, Q](c, k)
		if err == nil {
			err = c.idle(k.ref(r))
		}
		if err != nil {
			return reply{}, err
		}
		return do(c, r, req)
	}}
}

// on returns an action of a kind: do validates the request against the resource and returns the
// change to begin, by default about the resource alone.
func on[R resource, Q any](
	k kind[R], name string, do func(*call, R, Q) (change, error),
) actionRow {
	return exclusive(k, name, func(c *call, r R, req Q) (reply, error) {
		begin, err := do(c, r, req)
		if err != nil {
			return reply{}, err
		}
		if begin.about == nil {
			begin.about = []ref{k.ref(r)}
		}
		a := c.begin(begin)
		body := map[string]any{"action": c.renderAction(a)}
		if begin.more != nil {
			maps.Copy(body, begin.more(a))
		}
		return reply{status: http.StatusCreated, body: body}, nil
	})
}

// onMany is on for actions that begin several changes.
func onMany[R resource, Q any](
	k kind[R], name string, do func(*call, R, Q) ([]change, error),
) actionRow {
	return exclusive(k, name, func(c *call, r R, req Q) (reply, error) {
		changes, err := do(c, r, req)
		if err != nil {
			return reply{}, err
		}
		return ok(http.StatusCreated, "actions", c.beginAll(changes))
	})
}

// named returns the resource with an ID or name, or a not_found error.
func named[R resource](t *table[R], kind string, key schema.IDOrName) (R, error) {
	identity := func(r R) (int64, string) { return r.common().id, r.common().name }
	r, known := lookup(t.rows, key, identity)
	switch {
	case known:
		return r, nil
	case key.ID != 0:
		return r, errNotFound(kind, key.ID)
	}
	return r, errNotFound(kind, key.Name)
}
