package project

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"
)

// mostLatencies bounds what is remembered.
const mostLatencies = 10_000

// learn takes from a reply what is the run's, what isn't any more, and when actions began.
func (g *guard) learn(asked request, resp *http.Response, text []byte, began time.Time) {
	now := time.Now()
	var reply map[string]json.RawMessage
	parsed := json.Unmarshal(text, &reply) == nil && reply != nil
	g.mu.Lock()
	defer g.mu.Unlock()
	if asked.reads() && resp.StatusCode == http.StatusOK && len(g.latencies) < mostLatencies {
		g.latencies = append(g.latencies, now.Sub(began))
	}
	if !parsed || asked.nested && asked.reads() {
		return
	}
	switch {
	case resp.StatusCode == http.StatusNotFound && !asked.nested && saysNotFound(reply):
		g.gone(ref{asked.kind, asked.id})
	case resp.StatusCode < 300:
		if !asked.nested {
			g.learnThings(asked, reply, now)
		}
		if !asked.reads() {
			g.learnActions(reply, now)
		}
	}
}

// saysNotFound reports whether an error is the API's word for what doesn't exist.
func saysNotFound(reply map[string]json.RawMessage) bool {
	var e struct{ Code string }
	return json.Unmarshal(reply["error"], &e) == nil && e.Code == "not_found"
}

// learnThings takes in resources as they are shown.
func (g *guard) learnThings(asked request, reply map[string]json.RawMessage, now time.Time) {
	if asked.kind == "" {
		return
	}
	var texts []json.RawMessage
	if one, has := reply[string(asked.kind)]; has {
		texts = append(texts, one)
	}
	var several []json.RawMessage
	if json.Unmarshal(reply[asked.kind.plural()], &several) == nil {
		texts = append(texts, several...)
	}
	for _, text := range texts {
		t, is := parse(asked.kind, text)
		switch {
		case !is:
		case t.of(g.run):
			t.seen = now
			g.owned[t.ref], g.ever[t.ref] = t, true
			delete(g.spared, t.ref)
			for _, id := range t.addresses {
				g.addresses[id] = t.ref
			}
		default:
			g.isTheirs(t)
		}
	}
}

// gone forgets what isn't there any more.
func (g *guard) gone(r ref) {
	delete(g.owned, r)
	delete(g.spared, r)
	if r.kind == primaryIP {
		delete(g.addresses, r.id)
	}
}

// isTheirs notes that a thing isn't the run's: it never was, or somebody has taken its label or its
// name, and its addresses with it.
func (g *guard) isTheirs(t thing) {
	if g.ever[t.ref] || t.run != "" && !t.of(t.run) {
		g.spared[t.ref] = t
	}
	delete(g.owned, t.ref)
	delete(g.ever, t.ref)
	maps.DeleteFunc(g.addresses, func(_ int64, with ref) bool { return with == t.ref })
}

// learnActions notes when actions were named first.
func (g *guard) learnActions(reply map[string]json.RawMessage, now time.Time) {
	var named []json.RawMessage
	for _, key := range []string{"actions", "next_actions"} {
		var several []json.RawMessage
		if json.Unmarshal(reply[key], &several) == nil {
			named = append(named, several...)
		}
	}
	for _, text := range append(named, reply["action"]) {
		var action struct{ ID int64 }
		if json.Unmarshal(text, &action) == nil && action.ID > 0 {
			if _, known := g.replied[action.ID]; !known {
				g.replied[action.ID] = now
			}
		}
	}
}

// things are the run's that aren't known to be gone, in the order in which they can be removed.
func (g *guard) things() []thing {
	g.mu.Lock()
	defer g.mu.Unlock()
	return inOrder(g.owned)
}

// others are those that are spared.
func (g *guard) others() []thing {
	g.mu.Lock()
	defer g.mu.Unlock()
	return inOrder(g.spared)
}

// inOrder lists things in the order of kinds, and the older before the newer.
func inOrder(of map[ref]thing) []thing {
	return slices.SortedFunc(maps.Values(of), func(a, b thing) int {
		return cmp.Or(
			cmp.Compare(slices.Index(kinds[:], a.kind), slices.Index(kinds[:], b.kind)),
			cmp.Compare(a.id, b.id),
		)
	})
}
