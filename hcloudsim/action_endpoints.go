package hcloudsim

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// arbitraryActions is the announcement that GET /actions requires IDs.
const arbitraryActions = "https://docs.hetzner.cloud/changelog#2025-01-30-listing-arbitrary-" +
	"actions-in-the-actions-list-endpoint-is-removed"

// listActions implements GET /actions.
func (c *call) listActions() (reply, error) {
	if !c.request.URL.Query().Has("id") {
		e := newError(http.StatusGone, "deprecated_api_endpoint",
			"listing actions without their IDs was removed")
		e.Details = map[string]string{"announcement": arbitraryActions}
		return reply{}, e
	}
	return c.replyActions(func(*action) bool { return true })
}

// getAction returns an action by ID, optionally restricted to a kind or a resource.
func getAction(kind, parameter string) endpoint {
	return func(c *call) (reply, error) {
		id, err := c.pathID(parameter)
		if err != nil {
			return reply{}, err
		}
		a, known := c.actions.get(id)
		known = known && (kind == "" || a.isAboutKind(kind))
		if known && parameter != "id" {
			resource, err := c.pathID("id")
			if err != nil {
				return reply{}, err
			}
			known = slices.Contains(a.about, ref{kind, resource})
		}
		if !known {
			return reply{}, errNotFound("action", id)
		}
		return ok(http.StatusOK, "action", c.renderAction(a))
	}
}

// replyActions lists the actions that match the filter and the query. It omits unknown IDs.
func (c *call) replyActions(of func(*action) bool) (reply, error) {
	query := c.request.URL.Query()
	if err := oneOf(query, "status", "running", "success", "error"); err != nil {
		return reply{}, err
	}
	for _, id := range query["id"] {
		if !isID(id) {
			return reply{}, errInvalid("id", "'%s' is no ID", id)
		}
	}
	candidates := c.actions.all
	if query.Has("id") {
		candidates = nil
		for _, text := range query["id"] {
			id, _ := strconv.ParseInt(text, 10, 64)
			if a, known := c.actions.get(id); known && !slices.Contains(candidates, a) {
				candidates = append(candidates, a)
			}
		}
	}
	var chosen []*action
	for _, a := range candidates {
		if of(a) && asked(query["status"], a.status()) {
			chosen = append(chosen, a)
		}
	}
	finished := func(a *action) time.Time {
		if a.done {
			return a.ends
		}
		return time.Time{}
	}
	return list(c, "actions", chosen, order[*action]{
		"id":       func(a, b *action) int { return cmp.Compare(a.id, b.id) },
		"command":  func(a, b *action) int { return strings.Compare(a.command, b.command) },
		"status":   func(a, b *action) int { return strings.Compare(a.status(), b.status()) },
		"started":  func(a, b *action) int { return a.started.Compare(b.started) },
		"finished": func(a, b *action) int { return finished(a).Compare(finished(b)) },
	}, c.renderAction)
}

// Actions returns the action log, oldest first.
func (s *Simulator) Actions() []schema.Action {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.actions.all, p.renderAction)
}
