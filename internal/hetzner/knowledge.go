package hetzner

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// knowledge is what the API said of servers: the newest whole list, and answers
// about single servers that are newer. Only the whole list proves that a server
// that isn't in it does not exist.
type knowledge struct {
	whole []cloud.Machine
	asked time.Time // when the request for whole was sent; zero: never
	alone map[one]answer
	list  []cloud.Machine // whole with the answers in it; never changed in place

	burst     int // answers about single servers in a row
	lastAlone time.Time
}

// one is the server that a question is about.
type one struct {
	id   int64
	name string
}

type answer struct {
	asked time.Time
	found []cloud.Machine
}

func aboutOne(q cloud.Question) one {
	if q.ID != 0 {
		return one{id: q.ID}
	}
	return one{name: q.Name}
}

// unanswered returns the questions that nothing known is new enough for, and how
// new a whole list must be to answer them all.
func (k *knowledge) unanswered(questions []cloud.Question) (open []cloud.Question, since time.Time) {
	for _, q := range questions {
		if k.asked.Before(q.Since) && k.alone[aboutOne(q)].asked.Before(q.Since) {
			open = append(open, q)
			if q.Since.After(since) {
				since = q.Since
			}
		}
	}
	return open, since
}

// aloneGap ends a burst of questions about single servers.
const aloneGap = 5 * time.Second

// cheaperAlone reports whether so many more questions about single servers, with
// those of the current burst, take fewer requests than the whole list.
func (k *knowledge) cheaperAlone(questions int, now time.Time) bool {
	if now.Sub(k.lastAlone) > aloneGap {
		k.burst = 0
	}
	pages := (len(k.list) + pageSize - 1) / pageSize
	return k.burst+questions < pages
}

// listed takes in a whole list. Of the answers about single servers those stay
// that are newer and agree with it.
func (k *knowledge) listed(whole []cloud.Machine, asked time.Time) {
	k.whole, k.asked, k.list, k.burst = whole, asked, whole, 0
	newer := k.alone
	k.alone = map[one]answer{}
	for _, s := range slices.SortedFunc(maps.Keys(newer), func(a, b one) int { return newer[a].asked.Compare(newer[b].asked) }) {
		if newer[s].asked.After(asked) {
			k.take(s, newer[s])
		}
	}
}

// told takes in an answer about a single server and reports whether it agrees
// with what the list says of other servers. One that doesn't is not taken in: only
// a new list tells what became of those.
func (k *knowledge) told(q cloud.Question, found []cloud.Machine, asked time.Time) bool {
	k.burst++
	k.lastAlone = asked
	if k.asked.IsZero() || !asked.After(k.asked) {
		return true
	}
	return k.take(aboutOne(q), answer{asked, found})
}

func (k *knowledge) take(s one, a answer) bool {
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

// contradicts reports whether a server can't be as the list says if that is what
// was found: names and private addresses are unique.
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
