package addresses

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Assign assigns addresses to Services. claims must contain all Services: the addresses of a
// Service without a claim are freed. Refusals of changes precede refusals of requests; both are
// sorted by claim, the oldest first.
//
// A Service keeps an address while it requests the family, unless it requests another address or
// pool and gets it. New requests are decided by age.
func (l Ledger) Assign(pools []Pool, claims []Claim) (Ledger, []Refusal) {
	a := assignment{pools: pools, ledger: l.clone()}
	claims = slices.SortedFunc(slices.Values(claims), Claim.older)
	a.release(claims)
	for _, c := range claims {
		a.renew(c)
	}
	for _, c := range claims {
		a.keep(c)
	}
	for _, c := range claims {
		a.assign(c)
	}
	a.ledger.forget()
	return a.ledger, a.refusals
}

type assignment struct {
	pools    []Pool
	ledger   Ledger
	refusals []Refusal
}

func (a *assignment) refuse(c Claim, f Family, reason Reason, field, value, text string) {
	a.refusals = append(a.refusals, Refusal{
		UID: c.UID, Family: f, Reason: reason, Field: field, Value: value, Text: text,
	})
}

// release frees the addresses of deleted Services and of families that are no longer requested. The
// remaining Services of an address are updated in one step if their current specs admit each other:
// none of them can be the first to change its key, policy or selector.
func (a *assignment) release(claims []Claim) {
	byUID := make(map[string]Claim, len(claims))
	for _, c := range claims {
		byUID[c.UID] = c
	}
	for _, e := range a.ledger.Entries() {
		renewed := Entry{}
		for _, s := range e.Shares {
			c := byUID[s.UID]
			if !slices.Contains(c.Families, FamilyOf(e.Address)) {
				e = e.without(s.UID)
				continue
			}
			share := c.share()
			share.Pool = s.Pool
			if reason, _ := renewed.admits(share); reason == "" {
				renewed = renewed.with(share)
			}
		}
		if len(renewed.Shares) == len(e.Shares) {
			e.Shares = renewed.Shares
		}
		a.ledger.put(e)
	}
}

// renew updates the Service's shares to its current spec. A change that conflicts with another
// Service at the address is refused, and the old share is kept.
func (a *assignment) renew(c Claim) {
	for _, address := range a.ledger.Of(c.UID) {
		e := a.ledger.entries[address]
		share := c.share()
		share.Pool = e.share(c.UID).Pool
		if reason, other := e.admits(share); reason != "" {
			a.refuse(c, FamilyOf(address), reason, "spec.ports", portList(c.Ports), fmt.Sprintf(
				"Service %s/%s shares the address %s and stands against this: change the ports, the traffic policy, the key, or with externalTrafficPolicy: Local the selector of one of them; until then what this Service had before counts",
				other.Namespace, other.Name, address))
			continue
		}
		a.ledger.put(e.with(share))
	}
}

// assign finds the missing addresses of a Service. With All, a Service without addresses gets
// either all families or none.
func (a *assignment) assign(c Claim) {
	have := make(map[Family]netip.Addr)
	for _, address := range a.ledger.Of(c.UID) {
		have[FamilyOf(address)] = address
	}
	found := make(map[Family]netip.Addr)
	complete := true
	for _, f := range c.Families {
		old, had := have[f]
		if had && a.fits(c, old) {
			e := a.ledger.entries[old]
			share := e.share(c.UID)
			share.Pool = c.Pool // as requested last
			a.ledger.put(e.with(share))
			continue
		}
		address, ok := a.find(c, f)
		if ok {
			found[f] = address
		}
		complete = complete && (ok || had)
	}
	if !complete && c.All && len(have) == 0 {
		return
	}
	for f, address := range found {
		if old, had := have[f]; had {
			a.ledger.put(a.ledger.entries[old].without(c.UID))
		}
		e := a.ledger.entries[address]
		e.Address = address
		a.ledger.put(e.with(c.share()))
	}
}

// fits reports whether an address fulfills the request of a Service. An address that was assigned
// by the name of a pool continues to fulfill a request for that pool, even if the pool changes.
func (a *assignment) fits(c Claim, address netip.Addr) bool {
	if wanted, requested := c.Wanted(FamilyOf(address)); requested {
		return wanted == address
	}
	if c.Pool == "" || c.Pool == a.ledger.entries[address].share(c.UID).Pool {
		return true
	}
	return slices.ContainsFunc(a.pools, func(p Pool) bool {
		return p.Name == c.Pool && p.Contains(address)
	})
}

// Most limits the addresses of all Services together; a shared address counts once for each
// Service. The ledger is a single object of the API server, which is limited to about 1 MB.
const Most = 4000

func (a *assignment) full() bool {
	n := 0
	for _, all := range a.ledger.of {
		n += len(all)
	}
	return n >= Most
}

func (a *assignment) find(c Claim, f Family) (netip.Addr, bool) {
	if a.full() {
		a.refuse(c, f, Exhausted, fieldPool, c.Pool,
			fmt.Sprintf("Services have %d addresses, and the ledger takes no more: delete some", Most))
		return netip.Addr{}, false
	}
	if wanted, requested := c.Wanted(f); requested {
		return wanted, a.mayHave(c, wanted)
	}
	pools := a.usable(c, f)
	if len(pools) == 0 {
		a.refuse(c, f, NoPool, fieldPool, c.Pool, noPool(c, f, a.pools))
		return netip.Addr{}, false
	}
	if address, ok := a.shared(c, f, pools); ok {
		return address, true
	}
	if address, ok := a.free(f, pools); ok {
		return address, true
	}
	names := make([]string, len(pools))
	for i, p := range pools {
		names[i] = p.Name
	}
	a.refuse(c, f, Exhausted, fieldPool, c.Pool, fmt.Sprintf("no %s address is free in %s: add a range to one of them, delete a Service, or let Services share an address by a key", f, strings.Join(names, ", ")))
	return netip.Addr{}, false
}

const (
	fieldPool      = "underlay.dev/address-pool"
	fieldAddresses = "underlay.dev/addresses"
)

// noPool returns the text of a NoPool refusal.
func noPool(c Claim, f Family, pools []Pool) string {
	named := slices.ContainsFunc(pools, func(p Pool) bool { return p.Name == c.Pool })
	switch {
	case c.Pool != "" && !named:
		return "there is no pool of this name: correct it, or remove this"
	case c.Pool != "" && !slices.Contains(c.Admitted, c.Pool):
		return fmt.Sprintf("the pool is not for namespace %s: name another one, or let its namespaceSelector match", c.Namespace)
	case c.Pool != "":
		return fmt.Sprintf("the pool has no %s range: add one, or name another pool", f)
	}
	return fmt.Sprintf("no pool gives %s addresses to Services of namespace %s by itself: add a range, or name a pool here that gives addresses on request", f, c.Namespace)
}

func (a *assignment) mayHave(c Claim, address netip.Addr) bool {
	if !a.inside(c, address) {
		a.refuse(c, FamilyOf(address), Outside, fieldAddresses, address.String(), fmt.Sprintf("the address is in no pool that Services of namespace %s may use, or a Node has it itself, or no machine of its segment can: name another one, or add it to a pool", c.Namespace))
		return false
	}
	reason, other := a.ledger.entries[address].admits(c.share())
	if reason == "" {
		return true
	}
	text := fmt.Sprintf("Service %s/%s has it: name another one, or give both the same key to share it, in one namespace, with ports that differ and one externalTrafficPolicy, and with Local one selector", other.Namespace, other.Name)
	if reason == PortTaken {
		text = fmt.Sprintf("Service %s/%s shares it and has one of the ports %s: change the ports, or name another address", other.Namespace, other.Name, portList(c.Ports))
	}
	a.refuse(c, FamilyOf(address), reason, fieldAddresses, address.String(), text)
	return false
}

// keep assigns missing addresses that the Service had from another controller or by a lost
// ledger, if they are available. It runs for all claims before unused addresses are assigned. It
// includes pools with OnRequest: a Service that has an address need not request it.
func (a *assignment) keep(c Claim) {
	for _, address := range c.Before {
		f := FamilyOf(address)
		_, has := OfFamily(a.ledger.Of(c.UID), f)
		mine := a.inside(Claim{Admitted: c.Admitted}, address) // also in pools that it does not request
		if has || !mine || !slices.Contains(c.Families, f) || a.full() {
			continue
		}
		e := a.ledger.entries[address]
		share := c.share()
		share.Pool = "" // it may be of another pool
		if reason, _ := e.admits(share); reason == "" {
			e.Address = address
			a.ledger.put(e.with(share))
		}
	}
}

func (a *assignment) inside(c Claim, address netip.Addr) bool {
	return slices.ContainsFunc(a.pools, func(p Pool) bool {
		return slices.Contains(c.Admitted, p.Name) && (c.Pool == "" || p.Name == c.Pool) &&
			p.Contains(address)
	})
}

func (a *assignment) usable(c Claim, f Family) (pools []Pool) {
	for _, p := range a.pools {
		offered := p.Name == c.Pool || c.Pool == "" && !p.OnRequest
		if offered && slices.Contains(c.Admitted, p.Name) &&
			slices.ContainsFunc(p.Ranges, func(r Range) bool { return FamilyOf(r.First) == f }) {
			pools = append(pools, p)
		}
	}
	return pools
}

// shared returns an address of these pools that the Service can share by its key.
func (a *assignment) shared(c Claim, f Family, pools []Pool) (netip.Addr, bool) {
	if c.Key == "" {
		return netip.Addr{}, false
	}
	for _, e := range a.ledger.Entries() {
		inside := slices.ContainsFunc(pools, func(p Pool) bool { return p.Contains(e.Address) })
		if reason, _ := e.admits(c.share()); len(e.Shares) > 0 && inside && reason == "" &&
			FamilyOf(e.Address) == f {
			return e.Address, true
		}
	}
	return netip.Addr{}, false
}

// free returns the first unused address of these pools. Addresses without an entry are preferred
// over released addresses, which clients may still associate with another Service. The search
// visits the entries of a range, not all of its addresses.
func (a *assignment) free(f Family, pools []Pool) (netip.Addr, bool) {
	var returned netip.Addr
	for _, p := range pools {
		for _, r := range p.Ranges {
			if FamilyOf(r.First) != f {
				continue
			}
			for address := r.First; r.Contains(address); address = address.Next() {
				e, known := a.ledger.entries[address]
				if !known {
					return address, true
				}
				if len(e.Shares) == 0 && !returned.IsValid() {
					returned = address
				}
			}
		}
	}
	return returned, returned.IsValid()
}

func portList(ports []Port) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf("%d/%s", p.Number, p.Protocol)
	}
	return strings.Join(texts, ",")
}
