package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// accused lets one node of three say that it hears neither of the others, of which one holds the
// address.
func accused(w *world) (holder, accuser, third string) {
	holder, accuser = three(w)
	third = "c"
	if holder == "c" {
		third = "b"
	}
	w.silences(addresses.ProxyPort, []string{accuser}, holder, third)
	return holder, accuser, third
}

// A rack fails with two of three nodes: the one that is left says so, and nobody else says anything.
func TestARackFails(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, left, _ := accused(w)
		w.after(disputedFor - 100*time.Millisecond)
		if w.holder("one") != holder {
			t.Error("it moves before anybody can object")
		}
		w.after(150 * time.Millisecond)
		if now := w.holder("one"); now != left {
			t.Errorf("%s holds it, want the one that is left", now)
		}
		// The next ones are not given to those that are gone, however long it takes.
		w.after(2 * time.Minute)
		w.service("two")
		w.settle()
		if now := w.holder("two"); now != left {
			t.Errorf("%s holds the next one", now)
		}
	})
}

// A node is cut off from the others, and the first to say so: it gets nothing.
func TestTheOneThatIsCutOffSpeaksFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, alone, third := accused(w)
		epoch := w.api.ledger().Entries()[0].Epoch
		w.after(disputedFor - 150*time.Millisecond)
		w.silences(addresses.ProxyPort, []string{third}, alone)
		w.after(time.Second)
		w.silences(addresses.ProxyPort, []string{holder}, alone)
		w.after(time.Hour)
		if e := w.api.ledger().Entries()[0]; e.Holder != holder || e.Epoch != epoch {
			t.Errorf("%s holds it in epoch %d, was %s in %d", e.Holder, e.Epoch, holder, epoch)
		}
		// It was never believed, and says it again: that is not the same silence.
		w.silences(addresses.ProxyPort, []string{third, holder, alone})
		w.after(time.Minute)
		w.silences(addresses.ProxyPort, []string{alone}, holder, third)
		w.after(disputedFor - 100*time.Millisecond)
		if e := w.api.ledger().Entries()[0]; e.Holder != holder {
			t.Errorf("%s holds it at once the second time", e.Holder)
		}
	})
}

// The other way around: those that hear each other speak first, and the cut-off holder loses.
func TestTheOneThatIsCutOffHolds(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, _ := three(w)
		others := slices.DeleteFunc([]string{"a", "b", "c"}, func(n string) bool { return n == holder })
		w.silences(addresses.ProxyPort, []string{holder}, others...)
		w.silences(addresses.ProxyPort, others, holder)
		w.settle()
		if now := w.holder("one"); !slices.Contains(others, now) {
			t.Errorf("%s holds it", now)
		}
	})
}
