package layer2

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

const testCluster = "one"

var (
	start    = time.Unix(1_000_000, 0)
	ownMAC   = MAC{2, 0, 0, 0, 0, 1}
	friend   = MAC{2, 0, 0, 0, 0, 2} // by Config.Friend
	tagger   = MAC{2, 0, 0, 0, 0, 3} // by its tags
	stranger = MAC{2, 0, 0, 0, 0, 9}
	asker    = MAC{2, 0, 0, 0, 0, 8}
	address4 = netip.MustParseAddr("192.0.2.10")
	client4  = netip.MustParseAddr("192.0.2.200")
	uplink   = Link{Name: "up0", Index: 2, MAC: net.HardwareAddr(ownMAC[:]), Prefixes: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64"),
	}}
)

// script sends events to a protocol, and records its frames with their times.
type script struct {
	t       *testing.T
	p       *protocol
	now     time.Time
	desired Desired
	lines   []string
}

func newScript(t *testing.T) *script {
	s := &script{
		t: t, now: start,
		desired: Desired{Assignment: addresses.Assignment{Cluster: testCluster}, Links: []Link{uplink}},
		p:       newProtocol(func(m net.HardwareAddr) bool { return macOf(m) == friend }),
	}
	return s
}

// hold sets the desired address with an epoch, and opens its wire. With epoch 1 no node has held it
// before.
func (s *script) hold(epoch uint64, change ...func(*Desired)) {
	s.desired.Hold = []addresses.Assigned{{Address: address4, Epoch: epoch, Held: epoch > 1}}
	s.set(change...)
}

func (s *script) set(change ...func(*Desired)) {
	for _, c := range change {
		c(&s.desired)
	}
	s.p.set(s.now, s.desired)
	s.collect()
	for key := range s.p.needed() {
		if _, open := s.p.wires[key]; !open {
			s.p.opened(s.now, key)
		}
	}
	s.collect()
}

func doubt(yes bool) func(*Desired)    { return func(d *Desired) { d.Doubt = yes } }
func elsewhere(d *Desired)             { d.Hold, d.Elsewhere = nil, []netip.Addr{address4} }
func gone(d *Desired)                  { d.Hold, d.Elsewhere = nil, nil }
func resumed(d *Desired)               { d.Hold[0].Resumed = true }
func unheld(d *Desired)                { d.Hold[0].Held = false }
func links(all ...Link) func(*Desired) { return func(d *Desired) { d.Links = all } }

// claim returns a host's claim, with a tag if there is an epoch.
func claim(who MAC, epoch uint64) Message {
	m := Message{From: who, Claim: address4, Claimant: who}
	if epoch > 0 {
		m.Tag = Tag{clusterHash(testCluster), epoch}
	}
	return m
}

var (
	request = Message{
		From: asker, Target: address4, Requester: client4, ReplyTo: asker, Claim: client4,
		Claimant: asker,
	}
	dadOf = func(who MAC) Message { return Message{From: who, Target: address4, ReplyTo: who} }
)

func (s *script) receive(m Message) { s.hearOn(uplink.Name, m) }

func (s *script) hearOn(link string, m Message) {
	s.p.receive(s.now, link, m)
	s.collect()
}

func (s *script) pass(d time.Duration) {
	end := s.now.Add(d)
	for rounds := 0; ; rounds++ {
		next := s.p.next()
		if next.IsZero() || next.After(end) {
			break
		}
		if rounds > 10_000 {
			s.t.Fatalf("the protocol does not come to rest: it wants to go on at %s", next.Sub(start))
		}
		if next.After(s.now) {
			s.now = next
		}
		s.p.tick(s.now)
		s.collect()
	}
	s.now = end
}

// collect records the sent frames, with times rounded to a hundredth of a second.
func (s *script) collect() {
	for _, f := range s.p.out {
		if f.Reply {
			continue // the same content
		}
		line := fmt.Sprintf("%d %s", s.now.Sub(start).Round(10*time.Millisecond).Milliseconds(), f.Kind)
		if f.Kind == Reply {
			line += " " + f.To.String()[14:]
		}
		s.lines = append(s.lines, line)
	}
	s.p.out, s.p.notes = nil, nil
}

// takeOutput returns the lines since the last call.
func (s *script) takeOutput() string {
	said := strings.Join(s.lines, ", ")
	s.lines = nil
	return said
}

func (s *script) expect(want string) {
	s.t.Helper()
	if got := s.takeOutput(); got != want {
		s.t.Errorf("at %s it said %q, want %q", s.now.Sub(start), got, want)
	}
}

func (s *script) phase(want Phase, by MAC) {
	s.t.Helper()
	states := s.p.states()
	if len(states) != 1 || states[0].Phase != want || states[0].By != by {
		s.t.Errorf("at %s: %+v, want %s by %s", s.now.Sub(start), states, want, by)
	}
}

func (s *script) none() {
	s.t.Helper()
	if states := s.p.states(); len(states) != 0 {
		s.t.Errorf("at %s: %+v, want none", s.now.Sub(start), states)
	}
}

// held returns a script that has held the address with epoch 5 for a while, without doubt.
func held(t *testing.T) *script {
	s := newScript(t)
	s.hold(5)
	s.pass(5 * time.Second)
	s.phase(Holding, MAC{})
	s.takeOutput()
	return s
}

func TestTaking(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(s *script)
		said string
		end  Phase
		by   MAC
	}{
		"for the first time": {
			func(s *script) { s.hold(1); s.pass(700 * time.Millisecond) },
			"0 probe, 200 probe, 400 probe, 600 announce", Holding,
			MAC{},
		},
		"from another machine": {
			func(s *script) { s.hold(2); s.pass(200 * time.Millisecond) },
			"0 probe, 50 announce", Holding,
			MAC{},
		},
		"announced four times": {
			func(s *script) { s.hold(2); s.pass(2200 * time.Millisecond) },
			"0 probe, 50 announce, 250 announce, 1050 announce, 1470 probe, 2050 announce", Holding,
			MAC{},
		},
		"again after a restart": {
			func(s *script) { s.hold(2, resumed); s.pass(100 * time.Millisecond) },
			"0 announce, 0 probe", Holding,
			MAC{},
		},
		"again after a restart, in doubt": {
			func(s *script) { s.hold(2, resumed, doubt(true)); s.pass(100 * time.Millisecond) },
			"0 probe, 50 announce", Holding,
			MAC{},
		},
		"with a probe if its link is back after a restart": {
			func(s *script) {
				s.hold(2, resumed)
				s.pass(100 * time.Millisecond)
				s.takeOutput()
				s.set(links())
				s.set(links(uplink))
				s.pass(10 * time.Millisecond)
			},
			"100 probe", Probing,
			MAC{},
		},
		"again after a restart, when the ledger is read": {
			func(s *script) {
				s.hold(2, resumed, doubt(true))
				s.pass(20 * time.Millisecond)
				s.hold(2, resumed, doubt(false))
				s.receive(request)
				s.pass(10 * time.Millisecond)
			},
			"0 probe, 20 announce, 20 answer :08, 20 probe", Holding,
			MAC{},
		},
		"after a restart, when the ledger that is read has a later epoch": {
			func(s *script) {
				s.hold(2, resumed, doubt(true))
				s.pass(20 * time.Millisecond)
				s.hold(3, doubt(false))
				s.receive(request)
				s.pass(100 * time.Millisecond)
			},
			"0 probe, 20 probe, 70 announce", Holding,
			MAC{},
		},
		"not after a restart, when a stranger answers before the ledger is read": {
			func(s *script) {
				s.hold(2, resumed, doubt(true))
				s.pass(20 * time.Millisecond)
				s.receive(claim(stranger, 0))
				s.hold(2, resumed, doubt(false))
				s.pass(30*time.Second + 100*time.Millisecond)
			},
			"0 probe, 30020 probe", Refused, stranger,
		},
		"from a stranger that answers late": {
			func(s *script) {
				s.hold(1)
				s.pass(5 * time.Second)
				s.takeOutput()
				s.receive(claim(stranger, 0))
				s.receive(request)
				s.pass(20 * time.Second)
			},
			"", Refused, stranger,
		},
		"from a stranger that answers late, by a later epoch": {
			func(s *script) {
				s.hold(2)
				s.pass(4 * time.Second)
				s.takeOutput()
				s.receive(claim(stranger, 0))
			},
			"4000 announce", Holding,
			MAC{},
		},
		"from a stranger that answers late, after another machine refused it": {
			func(s *script) {
				s.hold(2, unheld)
				s.pass(150 * time.Millisecond)
				s.receive(claim(stranger, 0))
				s.pass(20 * time.Second)
			},
			"0 probe", Refused, stranger,
		},
		"from a stranger that answers after all probes, while the ledger hears that it is held": {
			func(s *script) {
				s.hold(7, unheld)
				s.pass(700 * time.Millisecond)
				s.hold(7)
				s.pass(4 * time.Second)
				s.takeOutput()
				s.receive(claim(stranger, 0))
				s.receive(request)
			},
			"", Refused, stranger,
		},
		"from a stranger long after it was taken": {
			func(s *script) {
				s.hold(7, unheld)
				s.pass(7 * time.Second)
				s.takeOutput()
				s.receive(claim(stranger, 0))
			},
			"7000 announce", Holding,
			MAC{},
		},
		"given back and given out again": {
			func(s *script) { s.hold(9, unheld); s.pass(700 * time.Millisecond) },
			"0 probe, 200 probe, 400 probe, 600 announce", Holding,
			MAC{},
		},
		"from a friend that answers": {
			func(s *script) { s.hold(2); s.pass(time.Millisecond); s.receive(claim(friend, 0)) },
			"0 probe, 0 announce", Holding,
			MAC{},
		},
		"from one that says so itself": {
			func(s *script) { s.hold(2); s.pass(time.Millisecond); s.receive(claim(tagger, 1)) },
			"0 probe, 0 announce", Holding,
			MAC{},
		},
		"not from a stranger": {
			func(s *script) {
				s.hold(2)
				s.pass(time.Millisecond)
				s.receive(claim(stranger, 0))
				s.pass(20 * time.Second)
			},
			"0 probe", Refused, stranger,
		},
		"not from a machine of another cluster": {
			func(s *script) {
				s.hold(2)
				s.pass(time.Millisecond)
				m := claim(tagger, 9)
				m.Tag.Cluster++
				s.receive(m)
			},
			"0 probe", Refused, tagger,
		},
		"not from a newer one": {
			func(s *script) { s.hold(2); s.pass(time.Millisecond); s.receive(claim(tagger, 3)) },
			"0 probe", Yielded, tagger,
		},
		"in doubt, when nobody answers": {
			func(s *script) { s.hold(2, doubt(true)); s.pass(200 * time.Millisecond) },
			"0 probe, 50 announce", Holding,
			MAC{},
		},
		"in doubt not from a friend": {
			func(s *script) {
				s.hold(2, doubt(true))
				s.pass(time.Millisecond)
				s.receive(claim(friend, 0))
			},
			"0 probe", Yielded, friend,
		},
		"in doubt from an older one": {
			func(s *script) {
				s.hold(2, doubt(true))
				s.pass(time.Millisecond)
				s.receive(claim(tagger, 1))
			},
			"0 probe, 0 announce", Holding,
			MAC{},
		},
		"nobody is answered while it is probed for": {
			func(s *script) { s.hold(2); s.pass(time.Millisecond); s.receive(request) },
			"0 probe", Probing,
			MAC{},
		},
		"somebody else wants it too": {
			func(s *script) {
				s.hold(2)
				s.pass(20 * time.Millisecond)
				s.receive(dadOf(stranger))
				s.pass(400 * time.Millisecond)
			},
			"0 probe, 50 announce, 250 announce", Holding,
			MAC{},
		},
		"a friend wants it too": {
			func(s *script) { s.hold(2); s.receive(dadOf(friend)); s.pass(150 * time.Millisecond) },
			"0 probe, 50 announce", Holding,
			MAC{},
		},
		"on no segment": {
			func(s *script) { s.hold(2, links()); s.pass(time.Minute) },
			"", OffSegment,
			MAC{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			c.run(s)
			s.expect(c.said)
			s.phase(c.end, c.by)
		})
	}
}

func TestRefusedIsProbedAgain(t *testing.T) {
	s := newScript(t)
	s.hold(2)
	s.pass(time.Millisecond)
	s.receive(claim(stranger, 0))
	s.receive(request)
	s.receive(dadOf(stranger))
	s.expect("0 probe")
	s.pass(30 * time.Second)
	s.expect("30000 probe")
	s.phase(Refused, stranger)
	s.receive(claim(stranger, 0))
	s.pass(30*time.Second + 250*time.Millisecond)
	s.phase(Refused, stranger)
	s.pass(100 * time.Millisecond)
	s.phase(Refused, stranger)
	s.pass(300 * time.Millisecond)
	s.phase(Holding, MAC{})
	s.expect("60000 probe, 60200 probe, 60400 probe, 60600 announce")
	s.receive(claim(stranger, 0)) // it was there all the time
	s.phase(Refused, stranger)
}

// IPv4 addresses are announced by requests and by replies: devices learn from one or the other.
func TestAnnouncedAsReplyToo(t *testing.T) {
	for _, c := range []struct {
		address netip.Addr
		want    string
	}{{address4, "[false true]"}, {address6, "[false]"}} {
		s := newScript(t)
		s.p.set(s.now, Desired{Links: []Link{uplink}, Assignment: addresses.Assignment{
			Hold: []addresses.Assigned{{Address: c.address, Epoch: 2, Resumed: true}},
		}})
		s.p.opened(s.now, keyOf(uplink, c.address))
		var replies []bool
		for _, f := range s.p.out {
			if f.Kind == Announce {
				replies = append(replies, f.Reply)
			}
		}
		if got := fmt.Sprint(replies); got != c.want {
			t.Errorf("%s is announced by replies: %s, want %s", c.address, got, c.want)
		}
	}
}
