package hetzner

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// knowledge caches the newest whole list of servers, with newer responses about single servers.
// Only the whole list proves that a server that isn't in it doesn't exist.
type knowledge struct {
	requested time.Time       // when the whole list was requested; zero: never
	network   int64           // of its private addresses
	list      []cloud.Machine // with the newer responses; never modified in place
	// answered holds when single servers were requested after the list, by the question's text.
	answered map[string]time.Time

	burst     int // consecutive requests for single servers
	lastAlone time.Time
}

// unanswered returns the questions without a response that is new enough, and their latest Since.
func (k *knowledge) unanswered(
	questions []cloud.Question,
) (open []cloud.Question, since time.Time) {
	for _, q := range questions {
		if k.requested.Before(q.Since) && k.answered[q.String()].Before(q.Since) {
			open = append(open, q)
			if q.Since.After(since) {
				since = q.Since
			}
		}
	}
	return open, since
}

// aloneGap ends a burst of requests for single servers.
const aloneGap = 5 * time.Second

// cheaperAlone reports whether a burst with that many more requests for single servers takes
// fewer requests than a whole list.
func (k *knowledge) cheaperAlone(questions int, now time.Time) bool {
	if now.Sub(k.lastAlone) > aloneGap {
		k.burst = 0
	}
	pages := (len(k.list) + pageSize - 1) / pageSize
	return k.burst+questions < pages
}

// listed stores a whole list. Responses about single servers that are newer are lost, and the
// questions are unanswered again.
func (k *knowledge) listed(whole []cloud.Machine, network int64, requested time.Time) {
	*k = knowledge{
		requested: requested, network: network, list: whole,
		answered: map[string]time.Time{}, lastAlone: k.lastAlone,
	}
}

// learn stores a response about a single server, unless it contradicts the list's entries for other
// servers. It reports whether it agrees; if not, only a new list shows the state of those servers.
func (k *knowledge) learn(
	q cloud.Question, found []cloud.Machine, network int64, requested time.Time,
) bool {
	k.burst++
	k.lastAlone = requested
	if k.requested.IsZero() || !requested.After(k.requested) || network != k.network {
		return true
	}
	contradicts := func(m cloud.Machine) bool { return contradict(q, found, m) }
	if slices.ContainsFunc(k.list, contradicts) {
		return false
	}
	k.answered[q.String()] = requested
	byID := func(m cloud.Machine, id int64) int { return cmp.Compare(m.ID, id) }
	for _, m := range found {
		i, listed := slices.BinarySearchFunc(k.list, m.ID, byID)
		k.list = slices.Clone(k.list)
		if listed {
			k.list[i] = m
		} else {
			k.list = slices.Insert(k.list, i, m)
		}
	}
	return true
}

// contradict reports whether the servers found for q contradict a listed server: names and
// private addresses are unique.
func contradict(q cloud.Question, found []cloud.Machine, listed cloud.Machine) bool {
	if slices.ContainsFunc(found, func(m cloud.Machine) bool { return m.ID == listed.ID }) {
		return false
	}
	if q.ID == listed.ID || q.ID == 0 && q.Name == listed.Name {
		return true
	}
	addresses := privateAddresses(listed)
	return slices.ContainsFunc(found, func(m cloud.Machine) bool {
		return m.Name == listed.Name || slices.ContainsFunc(privateAddresses(m),
			func(a netip.Addr) bool { return slices.Contains(addresses, a) })
	})
}

func privateAddresses(m cloud.Machine) []netip.Addr {
	if !m.PrivateIP.IsValid() {
		return m.AliasIPs
	}
	return append([]netip.Addr{m.PrivateIP}, m.AliasIPs...)
}
