package hetzner

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// knowledge caches the newest whole list of servers, and newer responses about single servers.
// Only the whole list proves that a server that isn't in it doesn't exist.
type knowledge struct {
	requested time.Time // when the request for the whole list was sent; zero: never
	network   int64     // of its private addresses
	alone     map[one]response
	list      []cloud.Machine // with the newer responses; never modified in place

	burst     int // consecutive requests for single servers
	lastAlone time.Time
}

// one identifies the server of a question by its ID or its name.
type one struct {
	id   int64
	name string
}

type response struct {
	requested time.Time
	found     []cloud.Machine
}

func aboutOne(q cloud.Question) one {
	if q.ID != 0 {
		return one{id: q.ID}
	}
	return one{name: q.Name}
}

// unanswered returns the questions without a response that is new enough, and their latest Since.
func (k *knowledge) unanswered(questions []cloud.Question) (open []cloud.Question, since time.Time) {
	for _, q := range questions {
		if k.requested.Before(q.Since) && k.alone[aboutOne(q)].requested.Before(q.Since) {
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

// listed stores a whole list, and keeps newer responses that don't contradict it.
func (k *knowledge) listed(whole []cloud.Machine, network int64, requested time.Time) {
	newer := k.alone
	if network != k.network {
		newer = nil
	}
	k.requested, k.network, k.list, k.burst = requested, network, whole, 0
	k.alone = map[one]response{}
	for _, s := range slices.SortedFunc(maps.Keys(newer), func(a, b one) int { return newer[a].requested.Compare(newer[b].requested) }) {
		if newer[s].requested.After(requested) {
			k.take(s, newer[s])
		}
	}
}

// learn stores a response about a single server, unless it contradicts the list's entries for other
// servers. It reports whether it agrees; if not, only a new list shows the state of those servers.
func (k *knowledge) learn(q cloud.Question, found []cloud.Machine, network int64, requested time.Time) bool {
	k.burst++
	k.lastAlone = requested
	if k.requested.IsZero() || !requested.After(k.requested) || network != k.network {
		return true
	}
	return k.take(aboutOne(q), response{requested, found})
}

func (k *knowledge) take(s one, a response) bool {
	if slices.ContainsFunc(k.list, func(listed cloud.Machine) bool { return contradicts(s, a.found, listed) }) {
		return false
	}
	k.alone[s] = a
	for _, server := range a.found {
		i, there := slices.BinarySearchFunc(k.list, server.ID, func(s cloud.Machine, id int64) int { return cmp.Compare(s.ID, id) })
		list := slices.Clone(k.list)
		if there {
			list[i] = server
		} else {
			list = slices.Insert(list, i, server)
		}
		k.list = list
	}
	return true
}

// contradicts reports whether the servers found for s contradict a listed server: names and
// private addresses are unique.
func contradicts(s one, found []cloud.Machine, listed cloud.Machine) bool {
	for _, f := range found {
		if f.ID == listed.ID {
			return false
		}
	}
	if s.id == listed.ID || s.name != "" && s.name == listed.Name {
		return true
	}
	return slices.ContainsFunc(found, func(f cloud.Machine) bool {
		return f.Name == listed.Name || slices.ContainsFunc(privateAddresses(f), func(a netip.Addr) bool {
			return slices.Contains(privateAddresses(listed), a)
		})
	})
}

func privateAddresses(s cloud.Machine) []netip.Addr {
	if !s.PrivateIP.IsValid() {
		return s.AliasIPs
	}
	return append([]netip.Addr{s.PrivateIP}, s.AliasIPs...)
}
