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

// listActions implements GET /actions, which requires IDs since January 2025.
func (c *call) listActions() (reply, error) {
	if !c.request.URL.Query().Has("id") {
		return reply{}, &Error{
			Status: http.StatusGone, Code: "deprecated_api_endpoint",
			Message: "listing actions without their IDs was removed",
			Details: announcementDetails{"https://docs.hetzner.cloud/changelog#2025-01-30-listing-arbitrary-actions-in-the-actions-list-endpoint-is-removed"},
		}
	}
	return c.replyActions(func(*action) bool { return true })
}

// listKindActions implements GET /networks/actions and its equivalents.
func listKindActions(kind string) endpoint {
	return func(c *call) (reply, error) {
		return c.replyActions(func(a *action) bool { return a.isAboutKind(kind) })
	}
}

// getAction returns an action by ID, optionally restricted to a kind or a resource.
func getAction(kind, parameter string) endpoint {
	return func(c *call) (reply, error) {
		id, err := c.pathID(parameter)
		if err != nil {
			return reply{}, err
		}
		a, known := c.actions.get(id)
		if !known || (kind != "" && !a.isAboutKind(kind)) {
			return reply{}, errNotFound("action", id)
		}
		if parameter != "id" {
			resource, err := c.pathID("id")
			if err != nil {
				return reply{}, err
			}
			if !a.isAbout(ref{kind, resource}) {
				return reply{}, errNotFound("action", id)
			}
		}
		return ok(http.StatusOK, "action", c.renderAction(a))
	}
}

// replyActions lists the actions that match the filter and the query. It omits unknown IDs.
func (c *call) replyActions(of func(*action) bool) (reply, error) {
	query := c.request.URL.Query()
	statuses := query["status"]
	for _, status := range statuses {
		if !slices.Contains([]string{"running", "success", "error"}, status) {
			return reply{}, errInvalid("status", "'%s' is no status of an action", status)
		}
	}
	candidates, err := c.askedActions(query["id"])
	if err != nil {
		return reply{}, err
	}
	var chosen []*action
	for _, a := range candidates {
		if of(a) && (len(statuses) == 0 || slices.Contains(statuses, a.status())) {
			chosen = append(chosen, a)
		}
	}
	return list(c, "actions", chosen, byAction(), c.renderAction)
}

func (c *call) askedActions(ids []string) ([]*action, error) {
	if len(ids) == 0 {
		return c.actions.all, nil
	}
	var asked []*action
	for _, text := range ids {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id < 1 {
			return nil, errInvalid("id", "'%s' is no ID", text)
		}
		if a, known := c.actions.get(id); known && !slices.Contains(asked, a) {
			asked = append(asked, a)
		}
	}
	return asked, nil
}

func byAction() order[*action] {
	finished := func(a *action) time.Time {
		if a.done {
			return a.ends
		}
		return time.Time{}
	}
	return order[*action]{
		"id":       func(a, b *action) int { return cmp.Compare(a.id, b.id) },
		"command":  func(a, b *action) int { return strings.Compare(a.command, b.command) },
		"status":   func(a, b *action) int { return strings.Compare(a.status(), b.status()) },
		"started":  func(a, b *action) int { return a.started.Compare(b.started) },
		"finished": func(a, b *action) int { return finished(a).Compare(finished(b)) },
	}
}

// Actions returns the action log, oldest first.
func (s *Simulator) Actions() []schema.Action {
	p, unlock := s.present()
	defer unlock()
	out := make([]schema.Action, 0, len(p.actions.all))
	for _, a := range p.actions.all {
		out = append(out, p.renderAction(a))
	}
	return out
}
