package ipam_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

const (
	ourUser  = "system:serviceaccount:kube-system:underlay-ccm"
	peerUser = "system:serviceaccount:kube-system:" + cluster.PeerAccount
	// rawWorkers is the number of concurrent writers of the raw loop; both allocators have as many.
	rawWorkers = 30
)

// A contender assigns podCIDRs to Nodes.
type contender struct {
	name, limits string
	user         string // in the audit log
	exact        bool   // it must need exactly one PATCH for a Node
	ledger       bool   // it writes a ledger
	restarts     bool   // its restart is measured
	start        func(context.Context, *testing.B, *run)
}

// A run is one execution of a contender.
type run struct {
	number  int
	process *process.Process  // nil: it runs in this process
	url     string            // of its metrics; "" if they aren't read
	metrics *http.Client      // client for its metrics
	created chan *corev1.Node // nil unless it must be notified of new Nodes
	stop    func()
}

func (r *run) prefix(what string) string { return fmt.Sprintf("%s-%d-", what, r.number) }

func (f *field) begin(ctx context.Context, b *testing.B, c contender) *run {
	b.Helper()
	f.runs++
	r := &run{number: f.runs, metrics: f.metrics}
	c.start(ctx, b, r)
	if r.stop == nil {
		r.stop = r.process.Kill
	}
	return r
}

// limits describes the client's limit; 0 is the program's own default.
func limits(qps, standard int) string {
	if qps == 0 {
		return fmt.Sprintf("default, %d/s", standard)
	}
	return "none"
}

// ours is underlay-ccm with node IPAM only, and without leader election, because the peer has none
// either.
func (f *field) ours(qps int) contender {
	return contender{
		name: "underlay", limits: limits(qps, 100), user: ourUser, exact: true, ledger: true, restarts: qps > 0,
		start: func(ctx context.Context, b *testing.B, r *run) {
			b.Helper()
			config := f.CloudConfig()
			if qps > 0 {
				config += fmt.Sprintf("ipamQPS: %d\n", qps)
			}
			m, err := f.StartManager(ctx, cluster.ManagerOptions{
				Config: config,
				Args: []string{
					"--controllers=node-ipam-controller", "--configure-cloud-routes=false", podRanges,
					"--leader-elect=false", "-v=0",
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			r.process, r.url = m.Process, m.URL
		},
	}
}

// peer is kube-controller-manager with node IPAM only.
func (f *field) peer(qps int) contender {
	return contender{
		name: "kube-controller-manager", limits: limits(qps, 20), user: peerUser,
		start: func(ctx context.Context, b *testing.B, r *run) {
			b.Helper()
			args := []string{podRanges}
			if qps > 0 {
				args = append(args, fmt.Sprintf("--kube-api-qps=%d", qps), fmt.Sprintf("--kube-api-burst=%d", qps))
			}
			p, err := f.StartPeer(ctx, args...)
			if err != nil {
				b.Fatal(err)
			}
			r.process = p
		},
	}
}

// raw receives each Node when it is created and writes the next ranges to it, without recording
// them. It uses Underlay's account, so that the API server treats its requests likewise.
func (f *field) raw() contender {
	return contender{
		name: "raw PATCH loop", limits: "none", user: ourUser, exact: true,
		start: func(ctx context.Context, b *testing.B, r *run) {
			b.Helper()
			path, err := f.ControlPlane.Kubeconfig(ctx, "kube-system", "underlay-ccm")
			if err != nil {
				b.Fatal(err)
			}
			config, err := clientcmd.BuildConfigFromFlags("", path)
			if err != nil {
				b.Fatal(err)
			}
			config.QPS = -1
			config.ContentType = "application/vnd.kubernetes.protobuf" // as both allocators do
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				b.Fatal(err)
			}
			r.created = make(chan *corev1.Node, nodeCount)
			var workers sync.WaitGroup
			next := ranges()
			for range rawWorkers {
				workers.Go(func() {
					for n := range r.created {
						patch(ctx, b, client, n, next())
					}
				})
			}
			r.stop = func() {
				close(r.created)
				workers.Wait()
			}
		},
	}
}

// ranges returns /24s and /64s one after the other.
func ranges() func() []string {
	var mu sync.Mutex
	v4, v6 := netip.MustParseAddr("100.64.0.0").As4(), netip.MustParseAddr("fd00:64::").As16()
	n := 0
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		a, z := v4, v6
		a[1] += byte(n >> 8)
		a[2], z[6], z[7] = byte(n), byte(n>>8), byte(n)
		n++
		return []string{
			netip.PrefixFrom(netip.AddrFrom4(a), 24).String(),
			netip.PrefixFrom(netip.AddrFrom16(z), 64).String(),
		}
	}
}

func patch(
	ctx context.Context, b *testing.B, client kubernetes.Interface, n *corev1.Node, podCIDRs []string,
) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.UID},
		"spec":     map[string]any{"podCIDR": podCIDRs[0], "podCIDRs": podCIDRs},
	})
	if err == nil {
		_, err = client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, body,
			metav1.PatchOptions{FieldValidation: metav1.FieldValidationIgnore})
	}
	if err != nil {
		b.Errorf("raw loop: %v", err)
	}
}
