package robot_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/robot"
	"github.com/underlay-ccm/underlay/internal/vswitch"
)

// lab is an account with a number of servers, and the client's caches.
type lab struct {
	sim      *robotsim.Simulator
	client   *robot.Client
	list     *robot.Servers
	vSwitch  int64 // contains all of them
	reported []string
	sent     atomic.Int32 // requests, with or without a response
}

// RoundTrip counts requests.
func (l *lab) RoundTrip(r *http.Request) (*http.Response, error) {
	l.sent.Add(1)
	return l.sim.Transport().RoundTrip(r)
}

func newLab(t *testing.T, servers int) *lab {
	t.Helper()
	l := &lab{sim: robotsim.New(robotsim.Options{User: "user", Password: "right"})}
	for n := range servers {
		if _, err := l.sim.CreateServer(robotsim.ServerSeed{Number: int64(n + 1), Name: fmt.Sprint("bm-", n+1), Product: "AX41-NVMe", DC: "FSN1-DC14"}); err != nil {
			t.Fatal(err)
		}
	}
	seed := robotsim.VSwitchSeed{}
	for n := range servers {
		seed.Servers = append(seed.Servers, robotsim.MemberSeed{Number: int64(n + 1)})
	}
	var err error
	if l.vSwitch, err = l.sim.CreateVSwitch(seed); err != nil {
		t.Fatal(err)
	}
	client, err := robot.New(robot.Options{
		Endpoint: "http://robot.test", Registry: metrics.NewKubeRegistry(), Transport: l,
		Credentials: func() (robot.Credentials, error) { return robot.NewCredentials("user", "right") },
	})
	if err != nil {
		t.Fatal(err)
	}
	l.client = client
	l.list = robot.NewServers(client, func(err error) {
		l.reported = append(l.reported, fmt.Sprint(err))
	})
	return l
}

// requests counts the requests by method and path.
func (l *lab) requests() map[string]int {
	out := map[string]int{}
	for _, r := range l.sim.Requests() {
		out[r.Method+" "+r.Path]++
	}
	return out
}

func TestServersInTheClustersWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		if _, err := l.sim.CreateServer(robotsim.ServerSeed{Number: 9, Product: "Dell PowerEdge R6515 (DX182) ", DC: "HEL1-DC2"}); err != nil {
			t.Fatal(err)
		}
		list, err := l.list.List(t.Context(), time.Time{})
		if err != nil || len(list) != 2 || list[0].ID != 1 || list[1].ID != 9 {
			t.Fatalf("%+v, %v", list, err)
		}
		a, b := list[0], list[1]
		if a.Name != "bm-1" || a.Type != "AX41-NVMe" || a.Zone != "fsn1-dc14" || a.Region != "fsn1" || !a.Dedicated || !a.PublicIPv4.IsValid() ||
			a.PublicIPv6.Bits() != 64 || len(a.Addresses) == 0 {
			t.Errorf("%+v", a)
		}
		if b.Type != "Dell-PowerEdge-R6515--DX182" || b.Zone != "hel1-dc2" || b.Region != "hel1" {
			t.Errorf("%+v", b)
		}
	})
}

// In an hour with the calls of upstream's controllers for 50 Nodes, and with the controller of the
// vSwitch's members, Robot receives at most one request a minute in total.
func TestAnHourAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const servers = 50
		l := newLab(t, servers)
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
		var nodes []*corev1.Node
		for n := range servers {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bm-", n+1), CreationTimestamp: metav1.Now()}}
			if node.Spec.ProviderID = fmt.Sprint("hrobot://", n+1); n%2 == 0 {
				node.Status.Conditions = []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown},
				}
			}
			node.Spec.PodCIDR = fmt.Sprintf("10.1.%d.0/24", 128+n)
			node.Spec.PodCIDRs = []string{node.Spec.PodCIDR}
			nodes = append(nodes, node)
			if err := store.Add(node); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.sim.SetMember(l.vSwitch, 7, "failed"); err != nil {
			t.Fatal(err)
		}
		defer runMembers(t, l, nodes)()
		i := &cloud.Instances{
			Nodes: corelisters.NewNodeLister(store), Recorder: &record.FakeRecorder{},
			Family:   cloud.DualStack,
			Machines: &cloud.Machines{Robot: l.list}, ForwardPrivate: true,
		}
		begin := time.Now()
		for sweep := 0; time.Since(begin) < time.Hour; sweep++ {
			for at, node := range nodes {
				if sweep%60 == 0 { // addresses, every five minutes
					if _, err := i.InstanceMetadata(t.Context(), node); err != nil {
						t.Fatal(err)
					}
				}
				if at%2 == 0 { // Nodes that aren't ready, every five seconds
					if exists, err := i.InstanceExists(t.Context(), node); !exists || err != nil {
						t.Fatal(exists, err)
					}
				}
			}
			time.Sleep(5 * time.Second)
		}
		got := l.requests()
		total := len(l.sim.Requests())
		t.Logf("%d requests in an hour: %v", total, got)
		if total > 60 {
			t.Errorf("%d requests in an hour: %v, want at most 60", total, got)
		}
		if n := got[fmt.Sprint("GET /vswitch/", l.vSwitch)]; n < 12 || n > 13 {
			t.Errorf("%d looks at the vSwitch, want one in five minutes", n)
		}
	})
}

// runMembers runs the controller that writes the conditions of these Nodes about the account's
// vSwitch, until stop.
func runMembers(t *testing.T, l *lab, nodes []*corev1.Node) (stop func()) {
	t.Helper()
	client := fake.NewClientset()
	for _, n := range nodes {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), n.DeepCopy(),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	c, err := vswitch.New(vswitch.Config{
		Client: client, Nodes: factory.Core().V1().Nodes(), Members: l.client,
		VSwitch: func() int64 { return l.vSwitch },
		Holds:   func(netip.Prefix) bool { return true }, Recorder: &record.FakeRecorder{},
		Registry: metrics.NewKubeRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	factory.Start(ctx.Done())
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	}
}

// Without unready Nodes, the list is read every five minutes.
func TestTheKeptListIsReadAgainEveryFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 50)
		for range 3600 {
			if _, err := l.list.List(t.Context(), time.Time{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := len(l.sim.Requests()); n != 12 {
			t.Errorf("%d requests in an hour, want 12", n)
		}
	})
}

// Known results remain available, requests for fresh ones fail, and this causes no more requests.
func TestTheListOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		first, err := l.list.List(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		l.sim.SetMaintenance(true)
		l.sim.ResetRequests()
		time.Sleep(time.Second)
		for range 720 { // an hour
			kept, err := l.list.List(t.Context(), time.Time{})
			if err != nil || len(kept) != len(first) {
				t.Fatalf("the list that was known: %v, %v", kept, err)
			}
			var away *robot.Unavailable
			if _, err := l.list.List(t.Context(), time.Now()); !errors.As(err, &away) {
				t.Fatalf("a list from before the outage passed for fresh: %v", err)
			}
			time.Sleep(5 * time.Second)
		}
		if n := len(l.sim.Requests()); n > 60 {
			t.Errorf("%d requests in an hour of an outage", n)
		}
		l.sim.SetMaintenance(false)
		time.Sleep(10 * time.Minute)
		if _, err := l.list.List(t.Context(), time.Now()); err != nil {
			t.Errorf("Robot is back: %v", err)
		}
		if len(l.reported) != 2 || l.reported[1] != "<nil>" {
			t.Errorf("reported %q, want the outage once, and its end", l.reported)
		}
	})
}

// Rejected credentials are reported once, and sent once.
func TestRefusedCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		l.sim.SetCredentials("user", "another")
		// Once, and once more when a block of the address by another program would be over.
		for minute := range 100 {
			if list, err := l.list.List(t.Context(), time.Time{}); err == nil {
				t.Fatalf("a list without a login: %v", list)
			}
			if n, most := len(l.sim.Requests()), 1+minute/60; n > most {
				t.Fatalf("after %d minutes the same credentials were sent %d times, want at most %d", minute, n, most)
			}
			time.Sleep(time.Minute)
		}
		if n := len(l.sim.Requests()); n == 0 {
			t.Error("the credentials were never sent")
		}
		if len(l.reported) != 1 || strings.Contains(l.reported[0], "right") {
			t.Errorf("told %q, want once and without the password", l.reported)
		}
	})
}

// No caller waits for a missing response, and a late one still counts.
func TestASlowRobotDelaysNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		if err := l.sim.Inject(robotsim.Fault{Match: "GET /server", Delay: 25 * time.Second}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.list.List(hasty, time.Time{}); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begin) != time.Second {
			t.Errorf("%v after %s, want the caller's own limit", err, time.Since(begin))
		}
		if _, err := l.list.List(t.Context(), time.Time{}); err == nil ||
			time.Since(begin) != 10*time.Second {
			t.Errorf("%v after %s, want an error after 10s", err, time.Since(begin))
		}
		time.Sleep(20 * time.Second)
		if list, err := l.list.List(t.Context(), time.Time{}); err != nil || len(list) != 1 ||
			len(l.sim.Requests()) != 1 {
			t.Errorf("%v, %v after %d requests", list, err, len(l.sim.Requests()))
		}
		// An older list is better than a wait.
		time.Sleep(6 * time.Minute)
		if err := l.sim.Inject(robotsim.Fault{Match: "GET /server", Delay: 25 * time.Second}); err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		if list, err := l.list.List(t.Context(), time.Time{}); err != nil || len(list) != 1 ||
			time.Since(begin) != 0 {
			t.Errorf("%v, %v after %s", list, err, time.Since(begin))
		}
		time.Sleep(time.Minute)
	})
}

// While Robot hangs from the start, sequential callers wait once for each attempt, not each of
// them.
func TestAHangingRobotIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		if err := l.sim.Inject(robotsim.Fault{Match: "GET /server", Times: -1, Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		ask := func() time.Duration {
			begin := time.Now()
			if list, err := l.list.List(t.Context(), begin); err == nil {
				t.Errorf("a list from a service that hangs: %v", list)
			}
			return time.Since(begin)
		}
		const nodes = 50
		waits := 0
		for range nodes {
			if ask() > 0 {
				waits++
			}
		}
		if waits != 1 {
			t.Errorf("%d of %d lookups waited, want the first alone", waits, nodes)
		}
		// Callers that arrive while the first waits don't wait longer than that one.
		time.Sleep(10 * time.Minute)
		go ask()
		time.Sleep(4 * time.Second)
		if took := ask(); took != 6*time.Second {
			t.Errorf("the second waited %s, want what is left of the first's 10s", took)
		}
		// Each attempt is waited for once, however many calls there are.
		time.Sleep(10 * time.Minute)
		waits = 0
		before := l.sent.Load()
		for begin := time.Now(); time.Since(begin) < time.Hour; time.Sleep(time.Second) {
			if ask() > 0 {
				waits++
			}
		}
		tries := int(l.sent.Load() - before)
		t.Logf("%d waits for %d tries in an hour", waits, tries)
		if waits > tries {
			t.Errorf("%d waits for %d tries", waits, tries)
		}
		l.sim.ClearFaults()
		time.Sleep(10 * time.Minute)
		if _, err := l.list.List(t.Context(), time.Now()); err != nil {
			t.Errorf("Robot is back: %v", err)
		}
	})
}

func TestOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		for range 12 {
			if _, err := l.list.Get(t.Context(), 7); !errors.Is(err, cloud.ErrNoServer) {
				t.Errorf("a server that is gone: %v", err)
			}
			time.Sleep(5 * time.Second)
		}
		if n := l.requests()["GET /server/7"]; n != 1 {
			t.Errorf("%d requests in a minute, want 1", n)
		}
		if d, err := l.list.Get(t.Context(), 1); err != nil || d.ID != 1 {
			t.Errorf("%+v, %v", d, err)
		}
		// A page of another server, or an unknown code: no statement of Robot about the server.
		for _, f := range []robotsim.Fault{{Status: 404}, {Code: "NOT_FOUND", Status: 404}, {Status: 503}} {
			time.Sleep(10 * time.Minute)
			if err := l.sim.Inject(f); err != nil {
				t.Fatal(err)
			}
			if _, err := l.list.Get(t.Context(), 7); err == nil || errors.Is(err, cloud.ErrNoServer) {
				t.Errorf("%+v: %v, want an error that proves nothing", f, err)
			}
		}
	})
}

// An account without servers has an empty list, and a failed response is no list.
func TestAnEmptyAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		if list, err := l.list.List(t.Context(), time.Time{}); err != nil || len(list) != 0 {
			t.Errorf("%v, %v; want none", list, err)
		}
	})
}
