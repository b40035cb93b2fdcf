package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/ipam"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func unlimited(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func createNode(t *testing.T, c kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	node, err := c.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// Facts about the API server that the node IPAM controller relies on.
func TestFactsAboutPodCIDRs(t *testing.T) {
	t.Parallel()
	cp := controlplane.StartT(t, controlplane.Options{
		WithoutControllerManager: true, Progress: io.Discard,
	})
	c := unlimited(t, cp.AdminConfig())
	patch := func(name, body string) (*corev1.Node, error) {
		return c.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(body),
			metav1.PatchOptions{FieldValidation: metav1.FieldValidationIgnore})
	}
	a := createNode(t, c, "a")
	if _, err := patch("a", `{"metadata":{"uid":"other"},"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]}}`); !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v, want it refused", err)
	}
	body := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24","fd00::/64"]}}`, a.UID)
	for range 2 {
		if n, err := patch("a", body); err != nil || len(n.Spec.PodCIDRs) != 2 {
			t.Errorf("patch: %v, %v", n.Spec.PodCIDRs, err)
		}
	}
	// The patch appends to the list; the result is either rejected or unchanged.
	for _, other := range []string{
		`{"spec":{"podCIDR":"10.0.1.0/24","podCIDRs":["10.0.1.0/24","fd00::/64"]}}`,
		`{"spec":{"podCIDR":"10.0.1.0/24","podCIDRs":["10.0.1.0/24"]}}`,
		`{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24","fd00:1::/64"]}}`,
		`{"spec":{"podCIDR":"fd00::/64","podCIDRs":["fd00::/64","10.0.0.0/24"]}}`,
	} {
		if _, err := patch("a", other); !apierrors.IsInvalid(err) {
			t.Errorf("other podCIDRs, %s: %v, want invalid", other, err)
		}
	}
	if n, err := patch("a", `{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]}}`); err != nil || len(n.Spec.PodCIDRs) != 2 {
		t.Errorf("one of its podCIDRs: %v, %v, want the Node as it was", n.Spec.PodCIDRs, err)
	}
	single := createNode(t, c, "single")
	if _, err := patch("single", `{"spec":{"podCIDR":"10.0.9.0/24","podCIDRs":["10.0.9.0/24"]}}`); err != nil {
		t.Error(err)
	}
	if _, err := patch("single", fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"podCIDR":"10.0.9.0/24","podCIDRs":["10.0.9.0/24","fd00:9::/64"]}}`, single.UID)); !apierrors.IsInvalid(err) {
		t.Errorf("a second family for a Node that has one: %v, want invalid", err)
	}
	if _, err := patch("nobody", body); !apierrors.IsNotFound(err) {
		t.Errorf("no Node: %v, want not found", err)
	}
	createNode(t, c, "b")
	n, err := patch("b", `{"spec":{"podCIDR":"10.0.2.0/24","podCIDRs":["fd00:1::/64","10.0.2.0/24"]}}`)
	if err != nil || len(n.Spec.PodCIDRs) != 1 {
		t.Errorf("podCIDR that differs: %v, %v, want it cut down", n.Spec.PodCIDRs, err)
	}
}

// Every tenth reply to a PATCH is lost after the patch was applied: no podCIDR is assigned twice,
// and no Node is written twice.
func TestLostRepliesToPodCIDRPatches(t *testing.T) {
	t.Parallel()
	cp := controlplane.StartT(t, controlplane.Options{
		WithoutControllerManager: true, Progress: io.Discard,
	})
	admin := unlimited(t, cp.AdminConfig())
	var patches, lost atomic.Int64
	config := cp.AdminConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/nodes/") && patches.Add(1)%10 == 1 && err == nil {
				lost.Add(1)
				resp.Body.Close()
				return nil, errors.New("reply lost")
			}
			return resp, err
		})
	})
	c := unlimited(t, config)
	for i := range 200 {
		createNode(t, admin, fmt.Sprint("node-", i))
	}
	run := func() func() {
		factory := informers.NewSharedInformerFactory(c, 0)
		ctl, err := ipamcontroller.New(ipamcontroller.Config{
			Client: c, Nodes: factory.Core().V1().Nodes(),
			Pools: []ipamcontroller.Pool{
				{PoolConfig: ipam.PoolConfig{Name: "v4", Prefix: netip.MustParsePrefix("10.0.0.0/16"), NodeMask: 24}},
				{PoolConfig: ipam.PoolConfig{Name: "v6", Prefix: netip.MustParsePrefix("fd00::/48"), NodeMask: 64}},
			},
			Namespace: metav1.NamespaceSystem, Quarantine: time.Minute, Fence: time.Second,
			Recorder: record.NewFakeRecorder(1000), Registry: metrics.NewKubeRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		factory.StartWithContext(ctx)
		done := make(chan error)
		go func() { done <- ctl.Run(ctx) }()
		return func() { cancel(); <-done; factory.Shutdown() }
	}
	complete := func(want int) {
		t.Helper()
		began := time.Now()
		seen := map[string]string{}
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				list, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
				if err != nil {
					return false, nil
				}
				clear(seen)
				for _, n := range list.Items {
					for _, p := range n.Spec.PodCIDRs {
						if other, ok := seen[p]; ok {
							t.Fatalf("%s and %s have %s", other, n.Name, p)
						}
						seen[p] = n.Name
					}
				}
				return len(seen) == want, nil
			})
		if err != nil {
			t.Fatalf("%d of %d podCIDRs: %v", len(seen), want, err)
		}
		t.Logf("%d podCIDRs after %v", want, time.Since(began))
	}
	stop := run()
	complete(400)
	stop()
	t.Logf("%d PATCH requests, %d replies lost", patches.Load(), lost.Load())
	if patches.Load() != 200 {
		t.Errorf("%d PATCH requests for 200 Nodes", patches.Load())
	}
	createNode(t, admin, "late")
	stop = run()
	defer stop()
	complete(402)
}
