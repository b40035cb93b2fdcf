package gatewayapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/contour"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

const (
	// howTo is the page that the test follows.
	howTo = "docs/how-to/gateway-api.md"
	// manifest is the URL of Contour's manifest on the page, without the version and the file.
	manifest = "https://raw.githubusercontent.com/projectcontour/contour/"

	// The Gateway of the page, and the Service that Contour creates for it.
	namespace, gateway, service = "edge", "tcp", "envoy-tcp"
)

// world is a cluster on the simulated cloud with Contour.
type world struct {
	*cluster.Cluster
	t        *testing.T
	contour  contour.Contour
	instance *contour.Instance
	page     *page
}

func start(t *testing.T) *world {
	t.Helper()
	built, is, err := contour.Built()
	if err != nil {
		t.Fatal(err)
	}
	if !is {
		t.Skipf("Contour %s isn't built: run this by make gateway-api", built.Version)
	}
	ctx := context.WithoutCancel(t.Context())
	manager, err := cluster.BuildManager(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Manager: manager, Cloud: hcloudsim.Options{ActionTime: 20 * time.Millisecond},
		ControlPlane: controlplane.Options{Dir: t.TempDir(), Progress: io.Discard},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	w := &world{Cluster: c, t: t, contour: built}
	// The configuration differs from the Gateway, so that the Gateway's setting shows.
	m, err := c.StartManager(ctx, cluster.ManagerOptions{Config: strings.Replace(c.CloudConfig(), "  usePrivateIP: true\n", "", 1)})
	if err != nil {
		t.Fatal(err)
	}
	w.endAfter(m.Process)
	for _, name := range []string{"node-0", "node-1"} {
		if err := c.AddMachine(ctx, cluster.Machine{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	w.page = openPage(t, c.ControlPlane, howTo, manifest+built.Version+"/examples/render/contour-gateway-provisioner.yaml", built.Manifest())
	return w
}

// endAfter ends a program after the test, and logs the end of its log if the test has failed.
func (w *world) endAfter(p *process.Process) {
	w.t.Cleanup(func() {
		p.Kill()
		if !w.t.Failed() {
			return
		}
		content, err := os.ReadFile(p.Log)
		const end = 6000
		w.t.Logf("--- %s %v\n%s", p.Log, err, content[max(0, len(content)-end):])
	})
}

// eventually waits until a condition holds. holds also returns the current state, for the message
// if it never does.
func (w *world) eventually(what string, holds func(context.Context) (bool, string)) {
	w.t.Helper()
	const patience = 3 * time.Minute // for a wait of seconds, on a busy machine
	last := "nothing was seen"
	err := wait.PollUntilContextTimeout(w.t.Context(), 100*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			var is bool
			is, last = holds(ctx)
			return is, nil
		})
	if err != nil {
		w.t.Fatalf("%s: not within %s; %s", what, patience, last)
	}
}

// balancer waits until the cloud has one load balancer that meets a condition.
func (w *world) balancer(
	what string, wanted func(schema.LoadBalancer) bool,
) (found schema.LoadBalancer) {
	w.t.Helper()
	w.eventually("the load balancer has "+what, func(context.Context) (bool, string) {
		all := w.Cloud.LoadBalancers()
		if len(all) != 1 {
			return false, fmt.Sprintf("%d load balancers", len(all))
		}
		found = all[0]
		return wanted(found), fmt.Sprintf("%v, %d targets", listeners(found), len(found.Targets))
	})
	return found
}

// changes are the writes about load balancers that the cloud received.
func (w *world) changes() (all []string) {
	for _, r := range w.Cloud.Requests() {
		if r.Method != http.MethodGet && strings.Contains(r.Path, "load_balancers") {
			all = append(all, r.Method+" "+r.Path)
		}
	}
	return all
}

func (w *world) service() *corev1.Service {
	w.t.Helper()
	svc, err := w.Client.CoreV1().Services(namespace).Get(w.t.Context(), service, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return svc
}

func (w *world) kubectl(args ...string) string {
	w.t.Helper()
	out, err := w.ControlPlane.Kubectl(w.t.Context(), args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// change patches the Gateway.
func (w *world) change(kind, patch string) error {
	_, err := w.ControlPlane.Kubectl(w.t.Context(), "-n", namespace, "patch", "gateway", gateway, "--type="+kind, "-p", patch)
	return err
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// hasAddresses checks that the Gateway's status has exactly these addresses.
func (w *world) hasAddresses(want ...string) func(context.Context) (bool, string) {
	slices.Sort(want)
	return func(context.Context) (bool, string) {
		out := w.kubectl("-n", namespace, "get", "gateway", gateway, "-o", "jsonpath={.status.addresses[*].value}")
		have := slices.Sorted(slices.Values(strings.Fields(out)))
		return slices.Equal(have, want), fmt.Sprintf("it has %q, want %q", have, want)
	}
}

// listeners describes the services of a load balancer by their listen ports.
func listeners(b schema.LoadBalancer) map[int]string {
	all := map[int]string{}
	for _, s := range b.Services {
		text := fmt.Sprintf("%s to %d", s.Protocol, s.DestinationPort)
		if s.Proxyprotocol {
			text += " with the PROXY protocol"
		}
		if c := s.HealthCheck; c != nil {
			text += fmt.Sprintf(", checked by %s on %d every %d s, %d times", c.Protocol, c.Port, c.Interval, c.Retries)
		}
		all[s.ListenPort] = text
	}
	return all
}

// nodePorts returns a Service's node ports by its ports.
func nodePorts(svc *corev1.Service) map[int]int {
	all := map[int]int{}
	for _, p := range svc.Spec.Ports {
		all[int(p.Port)] = int(p.NodePort)
	}
	return all
}

// envoyListeners returns the last configuration in the log of contour.Instance.WatchListeners: by
// the names of listeners, whether they expect the PROXY protocol.
func envoyListeners(log string) (map[string]bool, error) {
	content, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	told := map[string]bool{}
	object := ""
	for line := range strings.Lines(string(content)) {
		if object == "" && line != "{\n" {
			continue // log lines between the objects
		}
		if object += line; line != "}\n" {
			continue
		}
		var answer struct {
			Resources []struct {
				Name            string
				ListenerFilters []struct{ Name string } `json:"listener_filters"`
			}
		}
		if err := json.Unmarshal([]byte(object), &answer); err != nil {
			return nil, err
		}
		object = ""
		if len(answer.Resources) == 0 { // a request
			continue
		}
		clear(told)
		for _, r := range answer.Resources {
			told[r.Name] = slices.ContainsFunc(r.ListenerFilters, func(f struct{ Name string }) bool {
				return f.Name == "envoy.filters.listener.proxy_protocol"
			})
		}
	}
	return told, nil
}
