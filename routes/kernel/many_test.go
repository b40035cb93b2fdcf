//go:build linux

package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
)

// Of many routes in few datagrams each has its own outcome, and none that is
// refused keeps another from being made.
func TestAddAll(t *testing.T) {
	segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	k := open(t)
	var entries []agent.Entry
	for i := range 1000 {
		dst, via := fmt.Sprintf("10.%d.%d.0/24", 64+i>>8, i&0xff), "10.0.0.2"
		if i%2 == 1 {
			dst, via = fmt.Sprintf("fd01:0:0:%x::/64", i), "fd00::2"
		}
		entries = append(entries, toward(dst, via, segment.Index))
	}
	for i := 0; i < len(entries); i += 3 { // whole datagrams of errors are beside others
		entries[i].Link = 9999
	}
	taken := []int{1, 127, 128, 500, 998}
	for _, i := range taken {
		e := toward(entries[i].Dst.String(), entries[i].Via.Next().String(), segment.Index)
		if err := k.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	failed := k.AddAll(t.Context(), entries)
	stands := list(t, k)
	for i, e := range entries {
		err, made := failed[i], slices.Contains(stands, e)
		switch {
		case slices.Contains(taken, i):
			if !errors.Is(err, agent.ErrTaken) && i%3 != 0 || made {
				t.Errorf("%d, %s, whose place is taken: %v, made %t", i, e, err, made)
			}
		case i%3 == 0:
			if err == nil || errors.Is(err, agent.ErrTaken) || made {
				t.Errorf("%d, %s, on no interface: %v, made %t", i, e, err, made)
			}
		case err != nil || !made:
			t.Errorf("%d, %s: %v, made %t", i, e, err, made)
		}
	}
}

// As many errors as a datagram can lead to are all told.
func TestAddAllTellsEveryError(t *testing.T) {
	segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24")
	k := open(t)
	entries := make([]agent.Entry, 1000)
	for i := range entries {
		entries[i] = toward(fmt.Sprintf("10.%d.%d.0/24", 64+i>>8, i&0xff), "192.0.2.1", segment.Index)
	}
	for i, err := range k.AddAll(t.Context(), entries) {
		if err == nil || errors.Is(err, agent.ErrTaken) {
			t.Errorf("%d, through a gateway that is no neighbor: %v", i, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i, err := range k.AddAll(gone, entries) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%d, after the context has ended: %v", i, err)
		}
	}
}
