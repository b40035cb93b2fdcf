//go:build linux

package packets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/underlay-ccm/underlay/internal/connectivity"
	"github.com/underlay-ccm/underlay/internal/connectivity/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// The findings of underlayctl connectivity match the packets: all is open in a healthy cluster, and
// each fault is found at its place.
func TestConnectivity(t *testing.T) {
	f := start(t, netlab.Options{Metal: true, Machines: []string{"one", "two"}})
	kubelets := runProbes(t, f)
	rights, client := rightsOf(t, f)
	answerEverywhere(t, f)
	one, two := f.Machine("one"), f.Machine("two")
	for _, c := range []broken{
		{name: "all is well"},
		{
			name: "a node that keeps its pods' IPv6 packets",
			spoil: func(t *testing.T) {
				filter(t, two, "chain out { type filter hook postrouting priority 300; oifname \"uplink\" ip6 saddr "+podCIDRs(t, f, "two")[1].String()+" drop; }")
			},
			mend: func(t *testing.T) { unfilter(t, two) },
			want: []string{"pod 6 closed one→two", "pod 6 closed two→one"},
		},
		{
			name: "node ports that a firewall filters",
			spoil: func(t *testing.T) {
				filter(t, two, "chain in { type filter hook prerouting priority -300; iifname \"uplink\" ip daddr "+two.Public.IPv4.String()+" tcp dport 30000-32767 drop; }")
			},
			mend: func(t *testing.T) { unfilter(t, two) },
			want: []string{"node-port 4 closed one→two", "health-check 4 closed one→two"},
		},
		{
			name: "a link that takes smaller packets",
			spoil: func(t *testing.T) {
				filter(t, two, "chain in { type filter hook prerouting priority -300; iifname \"uplink\" ip daddr "+podCIDRs(t, f, "two")[0].String()+" ip length > 1400 drop; }")
			},
			mend: func(t *testing.T) { unfilter(t, two) },
			want: []string{"pod 4 narrow one→two"},
		},
		{
			name: "a packet filter that drops what is forwarded, as Docker brings one",
			spoil: func(t *testing.T) {
				run(t, two, "nft", "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }")
			},
			mend: func(t *testing.T) { run(t, two, "nft", "delete table ip filter") },
			want: []string{"pod 4 closed one→two", "pod 4 closed two→one", "pod 4 closed two→two", "health-check 4 closed two→one", "outside 4 closed two→198.51.100.2:7000"},
		},
		{
			name: "a route that is lost while no agent runs",
			spoil: func(t *testing.T) {
				one.KillAgent()
				run(t, one, "ip", "route", "del", podCIDRs(t, f, "two")[0].String())
			},
			mend: func(t *testing.T) {
				if err := one.RestartAgent(); err != nil {
					t.Fatal(err)
				}
				if err := one.AwaitReady(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"pod 4 closed one→two", "pod 4 closed two→one", "health-check 4 closed two→one"},
		},
		{
			name: "a node whose kube-proxy is gone, and its rules too",
			spoil: func(t *testing.T) {
				two.KillProxy()
				run(t, two, "nft", "delete table ip kube-proxy; delete table ip6 kube-proxy")
			},
			mend: func(t *testing.T) { restartProxy(t, two) },
			want: []string{
				"service 4 closed two→", "service 6 closed two→",
				"node-port 4 closed one→two", "node-port 4 closed two→two",
				"health-check 4 closed one→two", "health-check 4 closed two→two",
			},
		},
		{
			name: "node ports that are open on loopback alone",
			spoil: func(t *testing.T) {
				two.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
				restartProxy(t, two)
			},
			mend: func(t *testing.T) {
				two.NodePortAddresses = nil
				restartProxy(t, two)
			},
			want: []string{
				"node-port 4 closed one→two", "node-port 4 closed two→two",
				"health-check 4 closed one→two", "health-check 4 closed two→two",
			},
		},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.try(t, f, client, kubelets) }) {
			break
		}
	}
	t.Run("a run that is interrupted leaves nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		run := runner(client, kubelets)
		run.Progress = func(what string) {
			if what == "trying" {
				cancel()
			}
		}
		if _, err := run.Run(ctx, nodesOf(t, client)); err == nil {
			t.Error("it says nothing of the interruption")
		}
		nothingLeft(t, f)
	})
	t.Run("as a person runs it", func(t *testing.T) { theProgram(t, f, kubelets, rights) })
}

// broken is a fault, and the paths that it closes.
type broken struct {
	name        string
	spoil, mend func(*testing.T)
	want        []string // path, family, state and ends of the closed paths
}

func (b broken) try(
	t *testing.T, f *netlab.Lab, client kubernetes.Interface, kubelets *netlab.Kubelets,
) {
	if b.spoil != nil {
		b.spoil(t)
		defer b.mend(t)
	}
	r := tried(t, f, client, kubelets)
	notOpen(t, r, b.want)
}

// restartProxy returns when kube-proxy has written its rules.
func restartProxy(t *testing.T, m *netlab.Machine) {
	t.Helper()
	if err := m.RestartProxy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// runProbes runs the pods of connectivity until the test's end.
func runProbes(t *testing.T, f *netlab.Lab) *netlab.Kubelets {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	kubelets := f.RunPodsOf(ctx, cluster.Namespace, binaries.Agent)
	t.Cleanup(func() {
		cancel()
		if err := kubelets.Wait(); err != nil {
			t.Error(err)
		}
	})
	return kubelets
}

// rightsOf returns a client with the permissions of deploy/underlayctl/connectivity.yaml, whose
// namespace is created and remains.
func rightsOf(t *testing.T, f *netlab.Lab) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	if err := f.ControlPlane.Apply(t.Context(), "../../../deploy/underlayctl/connectivity.yaml"); err != nil {
		t.Fatal(err)
	}
	file, err := f.ControlPlane.Kubeconfig(t.Context(), metav1.NamespaceSystem, "underlay-connectivity")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the namespace's account", func() string {
		if _, err := f.Client.CoreV1().ServiceAccounts(cluster.Namespace).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	return config, client
}

func runner(client kubernetes.Interface, kubelets *netlab.Kubelets) *cluster.Runner {
	return &cluster.Runner{
		Client: client, Image: "underlay-agent", Start: patience, Settle: 4 * time.Second,
		Targets:  []netip.AddrPort{ownPort(netlab.OutsideIPv4), ownPort(netlab.OutsideIPv6)},
		Logs:     func(_ context.Context, pod string) ([]byte, error) { return kubelets.Log(pod) },
		Progress: func(string) {},
	}
}

func nodesOf(t *testing.T, client kubernetes.Interface) []*corev1.Node {
	t.Helper()
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*corev1.Node
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	return nodes
}

// tried returns the report of a run, and expects that the run deleted its objects.
func tried(
	t *testing.T, f *netlab.Lab, client kubernetes.Interface, kubelets *netlab.Kubelets,
) connectivity.Report {
	t.Helper()
	began := time.Now()
	found, err := runner(client, kubelets).Run(t.Context(), nodesOf(t, client))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a run took %s, %d results", time.Since(began).Round(time.Millisecond), len(found.Results))
	nothingLeft(t, f)
	return connectivity.NewReport(found.Nodes, found.Untried, found.Results)
}

// nothingLeft expects an empty namespace, as an administrator has after each run.
func nothingLeft(t *testing.T, f *netlab.Lab) {
	t.Helper()
	if ns, err := f.Client.CoreV1().Namespaces().Get(t.Context(), cluster.Namespace,
		metav1.GetOptions{}); err != nil || ns.DeletionTimestamp != nil {
		t.Errorf("the administrator's namespace: %v", err)
	}
	pods, err := f.Client.CoreV1().Pods(cluster.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("%d pods are left (%v)", len(pods.Items), err)
	}
	services, err := f.Client.CoreV1().Services(cluster.Namespace).List(t.Context(),
		metav1.ListOptions{})
	if err != nil || len(services.Items) > 0 {
		t.Errorf("%d Services are left (%v)", len(services.Items), err)
	}
}

// notOpen expects cells that are not open. Services are left out if pods are closed: they may
// select any of the pods.
func notOpen(t *testing.T, r connectivity.Report, want []string) {
	t.Helper()
	if len(r.Untried) > 0 {
		t.Errorf("not tried: %v", r.Untried)
	}
	podsClosed := slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(s, "pod ") && strings.Contains(s, "closed") })
	var got []string
	paths := map[string]bool{}
	for _, c := range r.Cells {
		paths[fmt.Sprint(c.Path, c.Family)] = true
		leadsToAny := c.Path == connectivity.Service || c.Path == connectivity.NodePort
		if c.State != connectivity.Open && !(podsClosed && leadsToAny) {
			got = append(got, fmt.Sprintf("%s %d %s %s→%s", c.Path, c.Family, c.State, c.From, c.To))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("not open:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(paths) < 8 {
		t.Errorf("tried were %v, want pods, a Service and the outside in 2 families, and node ports", paths)
	}
	if outcome := r.Outcome(); (outcome == connectivity.AllOpen) != (len(want) == 0) {
		t.Errorf("the outcome is %v", outcome)
	}
	for _, found := range r.Findings {
		t.Log(found.What)
		if found.Remedy == "" {
			t.Errorf("no remedy: %s", found.What)
		}
	}
}

const spoiled = "spoiled"

func filter(t *testing.T, m *netlab.Machine, chain string) {
	t.Helper()
	if _, err := m.Namespace.Feed(t.Context(), "table inet "+spoiled+" {\n"+chain+"\n}\n", "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func unfilter(t *testing.T, m *netlab.Machine) {
	t.Helper()
	run(t, m, "nft", "delete", "table", "inet", spoiled)
}
