package layer2

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// simulation is a segment with machines that hold one address according to a ledger, and a client
// that requests it. Frames take a step; partitions cut the segment, and machines from the ledger.
type simulation struct {
	t        *testing.T
	seed     uint64
	rand     *rand.Rand
	now      time.Time
	machines []*machine
	holder   int // according to the ledger
	epoch    uint64
	inFlight []flying
	events   []string

	wholeSince time.Time // since when the segment is not cut; zero: it is cut
	calmSince  time.Time // since when there was no event
	answeredAt time.Time // the last reply to the client
}

type machine struct {
	p          *protocol
	link       Link
	part       int  // of the segment
	connected  bool // to the ledger
	doubtAt    time.Time
	doubt      bool
	seenHolder int
	seenEpoch  uint64
	reads      time.Time // when it reads the ledger; zero: it has
}

type flying struct {
	from  int
	frame []byte
}

const (
	simulationStep = 10 * time.Millisecond
	simulated      = 3 // machines
)

func newSimulation(t *testing.T, seed uint64, tags bool) *simulation {
	s := &simulation{
		t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), now: start, epoch: 1, wholeSince: start,
		calmSince: start, answeredAt: start,
	}
	for i := range simulated {
		m := &machine{connected: true, link: Link{
			Name: "up0", Index: 2, MAC: net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}, Prefixes: uplink.Prefixes,
		}}
		s.machines = append(s.machines, m)
		s.boot(m)
		s.read(i)
	}
	return s
}

func (s *simulation) boot(m *machine) {
	m.p = newProtocol(func(hardware net.HardwareAddr) bool {
		return hardware[4] == 1 && hardware[5] < simulated
	})
}

// log sets the desired state of a machine according to its last read of the ledger.
func (s *simulation) log(i int, tags, resumed bool) {
	m := s.machines[i]
	d := Desired{Links: []Link{m.link}, Assignment: addresses.Assignment{Doubt: m.doubt}}
	if tags {
		d.Cluster = testCluster
	}
	if m.seenHolder == i {
		d.Hold = []addresses.Assigned{
			{Address: address4, Epoch: m.seenEpoch, Held: m.seenEpoch > 1, Resumed: resumed},
		}
	} else {
		d.Elsewhere = []netip.Addr{address4}
	}
	m.p.set(s.now, d)
	for key := range m.p.needed() {
		if _, open := m.p.wires[key]; !open {
			m.p.opened(s.now, key)
		}
	}
}

func (s *simulation) read(i int) {
	m := s.machines[i]
	m.seenHolder, m.seenEpoch, m.reads = s.holder, s.epoch, time.Time{}
}

// step advances the time by ten milliseconds.
func (s *simulation) step(tags bool) {
	s.now = s.now.Add(simulationStep)
	for i, m := range s.machines {
		if m.connected && !m.reads.IsZero() && !m.reads.After(s.now) {
			s.read(i)
			s.log(i, tags, false)
		}
		if !m.connected && !m.doubt && !m.doubtAt.After(s.now) {
			m.doubt = true
			s.log(i, tags, false)
		}
	}
	arriving := s.inFlight
	s.inFlight = nil
	for _, f := range arriving {
		for i, m := range s.machines {
			if message, ok := Parse(f.frame); ok && i != f.from && m.part == s.machines[f.from].part {
				m.p.receive(s.now, "up0", message)
			}
		}
	}
	for i, m := range s.machines {
		if next := m.p.next(); !next.IsZero() && !next.After(s.now) {
			m.p.tick(s.now)
		}
		s.collect(i)
	}
	s.broadcastRequest()
}

func (s *simulation) collect(i int) (answered bool) {
	m := s.machines[i]
	for _, f := range m.p.out {
		if f.Kind == Reply && f.To == asker {
			answered = true
			continue
		}
		frame, err := f.Ethernet()
		if err != nil {
			s.t.Fatal(err)
		}
		s.inFlight = append(s.inFlight, flying{i, frame})
	}
	m.p.out, m.p.notes = nil, nil
	return answered
}

// broadcastRequest broadcasts a request of the client to all machines.
func (s *simulation) broadcastRequest() {
	for i, m := range s.machines {
		m.p.receive(s.now, "up0", request)
		if s.collect(i) {
			s.answeredAt = s.now
		}
	}
}

func (s *simulation) happened(format string, args ...any) {
	s.events = append(s.events, fmt.Sprintf("%s ", s.now.Sub(start))+fmt.Sprintf(format, args...))
	s.calmSince = s.now
}

// holders returns the machines that hold the address.
func (s *simulation) holders() (holders []int) {
	for i, m := range s.machines {
		if states := m.p.states(); len(states) == 1 && states[0].Phase == Holding {
			holders = append(holders, i)
		}
	}
	return holders
}

func (s *simulation) fail(format string, args ...any) {
	s.t.Helper()
	for i, m := range s.machines {
		s.events = append(s.events, fmt.Sprintf("machine %d: part %d, connected %t, doubt %t, %+v", i, m.part, m.connected, m.doubt, m.p.states()))
	}
	s.t.Fatalf("seed %d, at %s: %s\n%s", s.seed, s.now.Sub(start), fmt.Sprintf(format, args...), strings.Join(s.events, "\n"))
}

// move gives the address in the ledger to a machine that is connected to the ledger.
func (s *simulation) move() {
	i := s.rand.IntN(simulated)
	if !s.machines[i].connected || i == s.holder {
		return
	}
	s.holder, s.epoch = i, s.epoch+1
	s.happened("epoch %d is machine %d's", s.epoch, i)
	for j, m := range s.machines {
		if m.reads.IsZero() {
			m.reads = s.now.Add(time.Duration(s.rand.IntN(50)) * time.Millisecond)
		}
		if j == i {
			m.reads = s.now
		}
	}
}

func (s *simulation) cut() {
	for _, m := range s.machines {
		m.part = s.rand.IntN(2)
	}
	s.wholeSince = time.Time{}
	s.happened("the segment is cut")
}

func (s *simulation) heal() {
	for _, m := range s.machines {
		m.part = 0
	}
	s.wholeSince = s.now
	s.happened("the segment is whole")
}

func (s *simulation) disconnect() {
	i := s.rand.IntN(simulated)
	m := s.machines[i]
	m.connected, m.doubtAt = false, s.now.Add(time.Duration(s.rand.IntN(3000))*time.Millisecond)
	s.happened("machine %d loses the ledger", i)
}

func (s *simulation) connect(tags bool) {
	i := s.rand.IntN(simulated)
	s.machines[i].connected, s.machines[i].doubt = true, false
	s.read(i)
	s.log(i, tags, false)
	s.happened("machine %d has the ledger", i)
}

func (s *simulation) restart(tags bool) {
	i := s.rand.IntN(simulated)
	m := s.machines[i]
	held := slices.Contains(s.holders(), i)
	if !m.connected {
		m.doubt = true
	}
	s.boot(m)
	s.log(i, tags, held)
	s.happened("machine %d starts again", i)
}

// After any events, one machine holds the address as soon as all can reach each other: within a
// second if frames carry epochs, and within a few otherwise. The client is never without a reply
// for long.
func TestOneMachineHolds(t *testing.T) {
	for _, c := range []struct {
		name    string
		tags    bool
		settles time.Duration
		silence time.Duration
	}{
		{"with epochs in frames", true, 1200 * time.Millisecond, 3200 * time.Millisecond},
		{"by hardware addresses alone", false, 4 * time.Second, 6 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(200) {
				s := newSimulation(t, seed, c.tags)
				for i := range s.machines {
					s.log(i, c.tags, false)
				}
				for range 6000 {
					if s.rand.IntN(150) == 0 {
						switch s.rand.IntN(8) {
						case 0:
							s.cut()
						case 1, 2:
							s.heal()
						case 3, 4:
							s.move()
						case 5:
							s.disconnect()
						case 6:
							s.connect(c.tags)
						case 7:
							s.restart(c.tags)
						}
					}
					s.step(c.tags)
					calm := s.now.Sub(s.calmSince) > c.settles && !s.wholeSince.IsZero()
					if holders := s.holders(); calm && len(holders) != 1 {
						s.fail("machines %v hold it", holders)
					}
					if silence := s.now.Sub(s.answeredAt); silence > c.silence && !s.wholeSince.IsZero() &&
						s.now.Sub(s.wholeSince) > c.silence {
						s.fail("nobody has answered for %s", silence)
					}
				}
			}
		})
	}
}

// A planned move loses no request: there is always a machine that replies.
func TestPlannedMoves(t *testing.T) {
	for seed := range uint64(50) {
		s := newSimulation(t, seed, true)
		for i := range s.machines {
			s.log(i, true, false)
		}
		for range 100 {
			s.step(true)
		}
		for range 2000 {
			if s.rand.IntN(100) == 0 {
				s.move()
			}
			s.step(true)
			if s.answeredAt != s.now {
				s.fail("nobody answers")
			}
		}
	}
}
