package layer2_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/layer2"
)

var (
	mac      = layer2.MAC{2, 0, 0, 0, 0, 1}
	client   = layer2.MAC{2, 0, 0, 0, 0, 8}
	address4 = netip.MustParseAddr("192.0.2.10")
	address6 = netip.MustParseAddr("2001:db8::10")
	uplink   = layer2.Link{Name: "up0", Index: 2, MAC: net.HardwareAddr(mac[:]), Prefixes: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64"),
	}}
)

// wires are all opened wires, with the frames sent on them.
type wires struct {
	mu     sync.Mutex
	opened []*wire
	refuse error
	start  time.Time
	// changes gets a value after each call of changed by the responder.
	changes chan struct{}
}

type wire struct {
	of     *wires
	family addresses.Family
	inbox  chan []byte
	broken chan error
	closed chan struct{}
	once   sync.Once
	sent   []string
	joined []netip.Addr
}

func (w *wires) open(
	_ context.Context, link layer2.Link, family addresses.Family,
) (layer2.Wire, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return nil, w.refuse
	}
	opened := &wire{
		of: w, family: family, inbox: make(chan []byte), broken: make(chan error),
		closed: make(chan struct{}),
	}
	w.opened = append(w.opened, opened)
	return opened, nil
}

// all returns the opened wires, ARP first.
func (w *wires) all() []*wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(w.opened), func(a, b *wire) int {
		return int(a.family - b.family)
	})
}

func (w *wire) Send(frame []byte) error {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	m, ok := layer2.Parse(frame)
	what := "answers"
	switch {
	case !ok:
		what = "sends rubbish"
	case !m.Claim.IsValid():
		what = "probes"
	case frame[0]&1 == 1:
		what = "announces"
		if frame[14+7] == 2 && w.family == addresses.IPv4 {
			return nil // the same content, as a reply
		}
	}
	w.sent = append(w.sent, fmt.Sprintf("%d %s", time.Since(w.of.start).Milliseconds(), what))
	return nil
}

func (w *wire) Receive(buffer []byte) (int, error) {
	select {
	case frame := <-w.inbox:
		return copy(buffer, frame), nil
	case err := <-w.broken:
		return 0, err
	case <-w.closed:
		return 0, net.ErrClosed
	}
}

func (w *wire) Join(held []netip.Addr) error {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.joined = slices.Clone(held)
	return nil
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

// takeOutput returns the frames sent on a wire since the last call.
func (w *wire) takeOutput() string {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	said := strings.Join(w.sent, ", ")
	w.sent = nil
	return said
}

// run runs a responder in a bubble.
func run(t *testing.T, test func(t *testing.T, r *layer2.Responder, w *wires)) {
	synctest.Test(t, func(t *testing.T) {
		w := &wires{start: time.Now(), changes: make(chan struct{}, 1)}
		r := layer2.New(w.open, nil)
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		var running sync.WaitGroup
		running.Go(func() {
			r.Run(ctx, func() {
				select {
				case w.changes <- struct{}{}:
				default:
				}
			})
		})
		test(t, r, w)
		cancel()
		running.Wait()
		for _, opened := range w.all() {
			select {
			case <-opened.closed:
			default:
				t.Error("a wire is open after the end")
			}
		}
	})
}

func desired(wants ...addresses.Assigned) layer2.Desired {
	return layer2.Desired{Assignment: addresses.Assignment{Cluster: "one", Hold: wants}, Links: []layer2.Link{uplink}}
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRun(t *testing.T) {
	run(t, func(t *testing.T, r *layer2.Responder, w *wires) {
		r.Set(desired(addresses.Assigned{Address: address4, Epoch: 1}, addresses.Assigned{
			Address: address6, Epoch: 2, Held: true,
		}))
		time.Sleep(650 * time.Millisecond)
		synctest.Wait()
		if len(w.all()) != 2 {
			t.Fatalf("%d wires", len(w.all()))
		}
		expect(t, w.all()[0].takeOutput(), "0 probes, 200 probes, 400 probes, 600 announces")
		expect(t, w.all()[1].takeOutput(), "0 probes, 50 announces, 250 announces")
		expect(t, fmt.Sprint(w.all()[1].joined), "[2001:db8::10]")
		<-w.changes

		question, err := layer2.Frame{Kind: layer2.Probe, From: client, Address: address4}.Ethernet()
		if err != nil {
			t.Fatal(err)
		}
		w.all()[0].inbox <- question
		w.all()[0].inbox <- question[:20]
		synctest.Wait()
		expect(t, w.all()[0].takeOutput(), "650 answers")
		if states := r.State(); len(states) != 2 || states[0].Phase != layer2.Holding ||
			states[0].Sent[layer2.Reply] != 1 || states[0].Sent[layer2.Probe] != 3 {
			t.Errorf("%+v", states)
		}

		r.Set(desired(addresses.Assigned{Address: address6, Epoch: 2, Held: true}))
		synctest.Wait()
		select {
		case <-w.all()[0].closed:
		default:
			t.Error("the wire that nobody needs is open")
		}
		<-w.changes
		time.Sleep(time.Minute)
		expect(t, w.all()[0].takeOutput(), "")
	})
}

func TestAWireFails(t *testing.T) {
	run(t, func(t *testing.T, r *layer2.Responder, w *wires) {
		r.Set(desired(addresses.Assigned{Address: address4, Epoch: 2, Held: true}))
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		w.refuse = errors.New("operation not permitted")
		w.mu.Unlock()
		w.all()[0].broken <- errors.New("network is down")
		synctest.Wait()
		state := r.State()[0]
		if state.Phase != layer2.Probing || !strings.Contains(state.Trouble, "reading ARP on interface up0: network is down") {
			t.Errorf("%+v", state)
		}
		time.Sleep(10 * time.Second)
		if state := r.State()[0]; !strings.Contains(state.Trouble, "opening a socket for ARP on interface up0: operation not permitted") {
			t.Errorf("%+v", state)
		}
		w.mu.Lock()
		w.refuse = nil
		w.mu.Unlock()
		time.Sleep(2200 * time.Millisecond)
		if state := r.State()[0]; state.Phase != layer2.Holding || state.Trouble != "" {
			t.Errorf("%+v", state)
		}
		if len(w.all()) != 2 || !strings.Contains(w.all()[1].takeOutput(), "probes") {
			t.Errorf("%d wires", len(w.all()))
		}
	})
}

// A wire that always fails at once is not reopened all the time.
func TestAWireFailsAgainAndAgain(t *testing.T) {
	run(t, func(t *testing.T, r *layer2.Responder, w *wires) {
		r.Set(desired(addresses.Assigned{Address: address4, Epoch: 2, Held: true}))
		end := time.Now().Add(time.Minute)
		for ; time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			synctest.Wait()
			opened := w.all()
			last := opened[len(opened)-1]
			select {
			case <-last.closed:
			default:
				last.broken <- errors.New("network is down")
			}
		}
		if n := len(w.all()); n < 30 || n > 40 {
			t.Errorf("%d wires in a minute", n)
		}
	})
}

// Simultaneous frames of a thousand addresses are spread over time where possible.
func TestManyAddresses(t *testing.T) {
	run(t, func(t *testing.T, r *layer2.Responder, w *wires) {
		var wants []addresses.Assigned
		for address := netip.MustParseAddr("192.0.2.1"); address != netip.MustParseAddr("192.0.2.251"); address = address.Next() {
			wants = append(wants, addresses.Assigned{Address: address, Epoch: 2, Held: true})
		}
		d := desired(wants...)
		r.Set(d)
		time.Sleep(time.Minute)
		w.all()[0].takeOutput()
		time.Sleep(time.Minute)
		if n := strings.Count(w.all()[0].takeOutput(), "probes"); n < 500 || n > 600 {
			t.Errorf("%d probes in a minute, want about two for each address", n)
		}
		d.Doubt = true
		r.Set(d)
		time.Sleep(time.Second)
		said := strings.Split(w.all()[0].takeOutput(), ", ")
		perMoment := map[string]int{}
		for _, line := range said {
			perMoment[line]++
		}
		if len(said) != 500 || len(perMoment) < 100 {
			t.Errorf("%d probes at %d moments of a second", len(said), len(perMoment))
		}
	})
}
