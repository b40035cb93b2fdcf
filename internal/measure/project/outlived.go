package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

// addressesMost is how long public addresses may stay after what they came with.
const addressesMost = time.Minute

// outlives says why an address that stays isn't removed.
const outlives = "it came with a %s of this run, has outlived it, and bears no label, so that nothing " +
	"removes it but you: hcloud primary-ip delete %d"

// awaitAddresses waits until the public addresses are gone that came with servers and load balancers
// of the run, and that the API removes with them. They bear no label: nothing else tells that they
// were the run's, so that one that stays is a [LeftBehind], and not removed.
func (s *sweep) awaitAddresses(ctx context.Context) error {
	for end := time.Now().Add(addressesMost); ; {
		left, err := s.outlived(ctx)
		if len(left) == 0 && err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return &LeftBehind{Run: s.run, Things: left, Err: err}
		}
		_ = sleep.For(ctx, roundMost)
	}
}

// outlived are the addresses that are still there though what they came with is gone.
func (s *sweep) outlived(ctx context.Context) (left []Left, err error) {
	var errs []error
	with := s.guard.orphans()
	for _, id := range slices.Sorted(maps.Keys(with)) {
		at := thing{ref: ref{primaryIP, id}}
		var reply map[string]json.RawMessage
		err := s.ask(ctx, http.MethodGet, at.path(), &reply)
		shown, is := parse(primaryIP, reply[string(primaryIP)])
		switch {
		case hcloud.IsError(err, hcloud.ErrorCodeNotFound):
		case err != nil:
			errs = append(errs, fmt.Errorf("looking at %s %d: %w", primaryIP, id, err))
		case !is:
			errs = append(errs, fmt.Errorf("looking at %s %d: the reply has none", primaryIP, id))
		case !s.guard.forgets(shown):
			left = append(left, Left{
				Kind: primaryIP.String(), Name: shown.name, ID: id, ByHand: true,
				Why: fmt.Errorf(outlives, with[id].kind, id),
			})
		}
	}
	return left, errors.Join(errs...)
}

// orphans are the addresses that aren't known to be gone, though what they came with is, and what
// that was. Those that the run has made bear its label, and are swept.
func (g *guard) orphans() map[int64]ref {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[int64]ref{}
	for id, with := range g.addresses {
		_, spared := g.spared[ref{primaryIP, id}]
		if !g.owns(with) && !g.ever[ref{primaryIP, id}] && !spared {
			all[id] = with
		}
	}
	return all
}

// forgets forgets an address that somebody uses for what isn't the run's: it is theirs.
func (g *guard) forgets(address thing) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	theirs := slices.ContainsFunc(address.holds, func(r ref) bool { return !g.ever[r] })
	if theirs {
		delete(g.addresses, address.id)
	}
	return theirs
}
