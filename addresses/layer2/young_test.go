package layer2

import (
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// An external host that always replies too late causes an address to be released and taken again
// and again, without a write of the ledger each time. Once it has left, the ledger records the
// address as held.
func TestALateStrangerDoesNotKeepTheLedgerBusy(t *testing.T) {
	l, err := addresses.ParseLedger([]byte(`{"version":1,"addresses":[{"address":"192.0.2.10",` +
		`"services":[{"uid":"u","namespace":"n","name":"s"}],"node":"a","epoch":7}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := newScript(t)
	s.hold(7, unheld)
	writes, refusals := 0, 0
	witness := func() {
		held, problems := Report(s.p.states())
		l = l.Witness(map[string]addresses.Report{"a": {Held: held, Refused: problems}})
		if e, _ := l.Entry(address4); e.Held != s.desired.Hold[0].Held {
			writes++
			s.set(func(d *Desired) { d.Hold[0].Held = e.Held })
		}
	}
	late := func() {
		s.pass(time.Second)
		s.receive(claim(stranger, 0))
	}
	for s.now.Sub(start) < 10*time.Minute {
		s.pass(100 * time.Millisecond)
		witness()
		if s.p.states()[0].Phase == Holding {
			late()
			refusals++
			witness()
		}
	}
	if writes > 0 || refusals < 10 {
		t.Errorf("the ledger was written %d times while the address was given back %d times", writes, refusals)
	}
	s.pass(time.Minute) // no more replies
	s.phase(Holding, MAC{})
	if witness(); writes != 1 {
		t.Errorf("the ledger was written %d times after the stranger was gone", writes)
	}
}

// The end of the probation is reported.
func TestYoungEnds(t *testing.T) {
	s := newScript(t)
	s.hold(7, unheld)
	s.pass(5 * time.Second)
	s.p.changed = false
	if !s.p.states()[0].Young {
		t.Errorf("%+v: want it young", s.p.states())
	}
	s.pass(time.Second)
	if s.p.states()[0].Young || !s.p.changed {
		t.Errorf("%+v, told: %t", s.p.states(), s.p.changed)
	}
}

// A machine that restores an address has held it, even if the ledger does not record it.
func TestResumedIsNotYoung(t *testing.T) {
	s := newScript(t)
	s.hold(2, unheld, resumed)
	s.pass(100 * time.Millisecond)
	s.takeOutput()
	s.receive(claim(stranger, 0))
	s.pass(time.Second)
	s.expect("200 announce, 1000 announce, 1100 probe")
	s.phase(Holding, MAC{})
}
