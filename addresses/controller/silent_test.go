package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// accused makes two of five nodes report all others, including the holder of the address, as
// unresponsive. One of the two watches the holder, as do two of the reported nodes.
func accused(w *world) (holder, accuser string) {
	w.node("a")
	w.start()
	w.service("one")
	w.settle()
	for _, other := range []string{"b", "c", "d", "e"} {
		w.node(other)
	}
	if got := addresses.Watchers("a", []string{"a", "b", "c", "d", "e"}); !slices.Equal(got, []string{"c", "b", "d"}) {
		w.t.Fatalf("a is watched by %v", got)
	}
	w.silences(addresses.ProxyPort, []string{"e", "d"}, "a", "b", "c")
	return "a", "d"
}

// A rack with three of five nodes fails: of the remaining ones, one watched the holder and reports
// it.
func TestARackFails(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, accuser := accused(w)
		w.after(disputedFor - 100*time.Millisecond)
		if w.holder("one") != holder {
			t.Error("it moves before anybody can object")
		}
		w.after(150 * time.Millisecond)
		if now := w.holder("one"); now != accuser && now != "e" {
			t.Errorf("%s holds it, want one of those that are left", now)
		}
		// Later addresses are not assigned to failed nodes either.
		w.after(2 * time.Minute)
		w.service("two")
		w.settle()
		if now := w.holder("two"); now != accuser && now != "e" {
			t.Errorf("%s holds the next one", now)
		}
	})
}

// Two nodes are cut off from the others, and are the first to report: they get no addresses.
func TestThoseThatAreCutOffSpeakFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, _ := accused(w)
		epoch := w.api.ledger().Entries()[0].Epoch
		w.after(disputedFor - 150*time.Millisecond)
		w.silences(addresses.ProxyPort, []string{"b"}, "d", "e")
		w.after(time.Second)
		w.silences(addresses.ProxyPort, []string{"a", "c"}, "d", "e")
		w.after(time.Hour)
		if e := w.api.ledger().Entries()[0]; e.Holder != holder || e.Epoch != epoch {
			t.Errorf("%s holds it in epoch %d, was %s in %d", e.Holder, e.Epoch, holder, epoch)
		}
		// Their reports were not confirmed, so the next ones start a new waiting time.
		w.silences(addresses.ProxyPort, []string{"a", "b", "c", "d", "e"})
		w.after(time.Minute)
		w.silences(addresses.ProxyPort, []string{"e", "d"}, "a", "b", "c")
		w.after(disputedFor - 100*time.Millisecond)
		if e := w.api.ledger().Entries()[0]; e.Holder != holder {
			t.Errorf("%s holds it at once the second time", e.Holder)
		}
	})
}

// A node joins before the packet filters of the others admit it: it reaches no node, all reach it,
// and its reports move no address.
func TestOneThatHearsNobodyTakesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.node("b")
		w.start()
		w.service("one")
		w.service("two")
		w.settle()
		services := []string{"one", "two"}
		before := w.all(services)
		w.node("c")
		w.silences(addresses.ProxyPort, []string{"c"}, "a", "b")
		w.after(4 * time.Minute)
		if now := w.all(services); !slices.Equal(now, before) {
			t.Errorf("they are held by %v, were by %v", now, before)
		}
	})
}

// A confirmed failure is remembered for a minute, also through an unconfirmed one, and an
// unconfirmed one is not remembered.
func TestASilenceIsRemembered(t *testing.T) {
	began := time.Now()
	f := fleet{health: newHealth()}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.members = append(f.members, member{name: name, ready: true, reports: true})
	}
	disputed, agreed := map[string]string{"d": "abc", "e": "bc"}, map[string]string{"b": "a", "c": "a"}
	for _, step := range []struct {
		at          time.Duration
		says        map[string]string
		silent, was bool
	}{
		{0, disputed, false, false},
		{disputedFor / 2, nil, false, false},
		{2 * time.Second, agreed, true, true},
		{3 * time.Second, nil, false, true},
		{4 * time.Second, disputed, false, true},
		{4*time.Second + disputedFor/2, nil, false, true},
		{2*time.Second + silentFor - disputedFor/2, disputed, false, true},
		{2*time.Second + silentFor, disputed, false, false},
		{2*time.Second + silentFor + disputedFor/2, disputed, true, true},
		{3*time.Second + silentFor, nil, false, true},
		{2*time.Second + silentFor + disputedFor/2 + silentFor, nil, false, false},
	} {
		f.now = began.Add(step.at)
		for i, m := range f.members {
			f.members[i].report.Silent = nil
			for _, node := range step.says[m.name] {
				f.members[i].report.Silent = append(f.members[i].report.Silent, addresses.Endpoint{Node: string(node), Port: addresses.ProxyPort})
			}
		}
		f.health.learn(&f)
		silent, was := f.health.silent("a", addresses.ProxyPort)
		if silent != step.silent || was != step.was {
			t.Errorf("after %v a is silent: %t, was: %t; want %t, %t", step.at, silent, was, step.silent, step.was)
		}
	}
	if len(f.health.silences) > 0 {
		t.Errorf("remembered to the end: %v", f.health.silences)
	}
}

// Conversely: if the connected nodes report first, the cut-off holder loses the address.
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
