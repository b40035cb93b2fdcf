package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/connectivity"
	"github.com/underlay-ccm/underlay/internal/connectivity/cluster"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/table"
)

const connectivityLong = `Test the network with pods: a server and a client on every Ready node, which are
removed at the end, also after Ctrl-C. Each client tests, in both families: the pods
of all nodes by TCP and UDP, with full-sized packets without fragmentation, a
Service's ClusterIP, a node port and the health check node port of every node, and
addresses outside with --target.

It writes only in the namespace underlay-connectivity, which
deploy/underlayctl/connectivity.yaml contains with the permissions.

Exit codes: 0 all paths are open; 1 a path is closed, or its MTU is smaller than the
pods'; 2 some could not be tested, and none is closed; 3 the command failed.`

// trying holds the flags of connectivity.
type trying struct {
	image   string
	nodes   []string
	most    int
	targets []string
	start   time.Duration
	settle  time.Duration
}

func connectivityCommand(w process, o *options) *cobra.Command {
	t := &trying{}
	cmd := &cobra.Command{
		Use:   "connectivity",
		Short: "Test the network between all nodes, with pods that are removed at the end",
		Long:  connectivityLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.run(cmd.Context(), w, o) },
	}
	f := cmd.Flags()
	f.StringVar(&t.image, "image", "", "Image of the pods, which must contain underlay-agent of this version. Default: that of the DaemonSet underlay-agent, which every node has already.")
	f.StringArrayVar(&t.nodes, "node", nil, "Test only between these nodes. Can be repeated.")
	_ = cmd.RegisterFlagCompletionFunc("node", o.completeNames("nodes", &t.nodes))
	f.IntVar(&t.most, "max-nodes", 30, "Maximum number of nodes, the first by name: the number of paths is its square.")
	f.StringArrayVar(&t.targets, "target", nil, "An address and port outside that must accept TCP connections, such as 203.0.113.7:443. Can be repeated.")
	f.DurationVar(&t.start, "start-timeout", time.Minute, "How long pods may take to start.")
	f.DurationVar(&t.settle, "settle", 10*time.Second,
		"How long a failing request is retried before the path is reported as closed.")
	cmd.AddCommand(&cobra.Command{
		Use: "clean", Short: "Remove the objects that a killed run of connectivity has left",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.writer()
			if err != nil {
				return err
			}
			ctx, cancel := o.patience(cmd.Context())
			defer cancel()
			if err := cluster.Clean(ctx, client); err != nil {
				return err
			}
			_, err = fmt.Fprintln(w.stdout, "Nothing of connectivity is left.")
			return err
		},
	})
	return cmd
}

// tried is the output of connectivity.
type tried struct {
	connectivity.Report
	Notes []string `json:"notes,omitempty"`
}

func (t *trying) run(ctx context.Context, w process, o *options) error {
	targets, err := t.check(o)
	if err != nil {
		return err
	}
	client, err := o.writer()
	if err != nil {
		return err
	}
	nodes, skipped, notes, err := t.choose(ctx, client)
	if err != nil {
		return err
	}
	if t.image == "" {
		if t.image, err = agentImage(ctx, client, o.namespace); err != nil {
			return err
		}
	}
	runner := &cluster.Runner{
		Client: client, Image: t.image, Start: t.start, Settle: t.settle, Targets: targets,
		Logs: func(ctx context.Context, pod string) ([]byte, error) {
			return client.CoreV1().Pods(cluster.Namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		},
		Progress: func(what string) { fmt.Fprintln(w.stderr, table.Harmless(what)) },
	}
	found, err := runner.Run(ctx, nodes)
	if err != nil && len(found.Results) == 0 {
		return err
	}
	report := connectivity.NewReport(found.Nodes, slices.Concat(skipped, found.Untried), found.Results)
	shown := tried{report, notes}
	if err := errors.Join(err, o.print(w, shown.Page(), shown)); err != nil {
		return err
	}
	return outcome(report.Outcome())
}

func outcome(code int) error {
	if code == 0 {
		return nil
	}
	return findings{code}
}

func (t *trying) check(o *options) ([]netip.AddrPort, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if t.most < 1 || t.most > cluster.MostNodes {
		return nil, fmt.Errorf("--max-nodes %d: give 1 to %d", t.most, cluster.MostNodes)
	}
	if t.start <= 0 || t.settle < 0 || t.settle > time.Minute {
		return nil, fmt.Errorf("--start-timeout %s, --settle %s: give durations that are not negative, --settle at most 1m", t.start, t.settle)
	}
	var targets []netip.AddrPort
	for _, text := range t.targets {
		a, err := netip.ParseAddrPort(text)
		if err != nil || a.Port() == 0 {
			return nil,
				fmt.Errorf("--target %q is no address with a port: write 203.0.113.7:443 or [2001:db8::7]:443",
					text)
		}
		targets = append(targets, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	}
	return targets, nil
}

// choose returns the nodes to try, sorted, the skipped ones, and notes for the user.
func (t *trying) choose(
	ctx context.Context, client kubernetes.Interface,
) (chosen []*corev1.Node, skipped []connectivity.Untried, notes []string, err error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	missing := slices.Clone(t.nodes)
	for i := range list.Items {
		n := &list.Items[i]
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == n.Name })
		switch {
		case len(t.nodes) > 0 && !slices.Contains(t.nodes, n.Name):
		case cmp.Or(n.Labels[corev1.LabelOSStable], "linux") != "linux":
			notes = append(notes, fmt.Sprintf("Node %s is left out: it does not run Linux", n.Name))
		case !kube.Ready(n):
			skipped = append(skipped, connectivity.Untried{
				Node: n.Name, Reason: "the Node is not Ready: see underlayctl inspect node " + n.Name,
			})
		default:
			chosen = append(chosen, n)
		}
	}
	if len(missing) > 0 {
		return nil, nil, nil,
			fmt.Errorf("--node %s: there is no such Node: see kubectl get nodes", strings.Join(missing,
				", "))
	}
	if len(chosen) > t.most {
		notes = append(notes,
			fmt.Sprintf("%d of %d nodes are tried: raise --max-nodes, or choose with --node", t.most,
				len(chosen)))
		chosen = chosen[:t.most]
	}
	if len(chosen) == 0 {
		return nil, nil, nil, errors.New("no Node can be tried: none is Ready, see underlayctl nodes")
	}
	return chosen, skipped, notes, nil
}

func agentImage(
	ctx context.Context, client kubernetes.Interface, namespace string,
) (string, error) {
	const name = "underlay-agent"
	set, err := client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no DaemonSet %s in namespace %s: name its namespace with --namespace, or an image that holds it with --image", name, namespace)
	}
	if err != nil {
		return "", fmt.Errorf("%w: or name an image that holds underlay-agent with --image", err)
	}
	for _, c := range set.Spec.Template.Spec.Containers {
		if c.Name == name || len(set.Spec.Template.Spec.Containers) == 1 {
			return c.Image, nil
		}
	}
	return "",
		fmt.Errorf("the DaemonSet %s/%s has no container %s: name an image with --image", namespace, name,
			name)
}

func (o *options) writer() (kubernetes.Interface, error) {
	return o.clientThrough(func(next http.RoundTripper) http.RoundTripper { return writesThere{next} })
}

// writesThere rejects requests that write outside of the namespace of connectivity.
type writesThere struct{ next http.RoundTripper }

func (g writesThere) RoundTrip(request *http.Request) (*http.Response, error) {
	const namespaces = "/api/v1/namespaces"
	const own = namespaces + "/" + cluster.Namespace
	path := request.URL.Path
	// The API server's URL may have a path prefix.
	inside := strings.HasSuffix(path, own) || strings.Contains(path, own+"/")
	switch {
	case request.Method == http.MethodGet,
		request.Method == http.MethodPost && strings.HasSuffix(path, namespaces),
		inside && (request.Method == http.MethodPost || request.Method == http.MethodDelete):
		return g.next.RoundTrip(request)
	}
	return nil,
		fmt.Errorf("underlayctl connectivity writes in namespace %s alone, and does not send %s %s",
			cluster.Namespace, request.Method, path)
}
