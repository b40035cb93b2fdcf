package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/connectivity"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// Runner executes plans in a cluster.
type Runner struct {
	Client kubernetes.Interface
	Logs   func(ctx context.Context, pod string) ([]byte, error)
	// Image contains underlay-agent.
	Image string
	// Start is the timeout of pods' start, Settle is how long failed trials are repeated.
	Start, Settle time.Duration
	Targets       []netip.AddrPort
	// Progress reports progress to the user.
	Progress func(string)
}

// Found is the result of a run.
type Found struct {
	Nodes   []string
	Untried []connectivity.Untried
	Results []connectivity.Result
}

// cleanWithin is the timeout of the cleanup.
const cleanWithin = 30 * time.Second

// Run runs all trials between nodes. It always removes the objects that it created, also if ctx
// is done, and joins an error of the removal to its own.
func (r *Runner) Run(ctx context.Context, nodes []*corev1.Node) (found Found, err error) {
	if len(nodes) == 0 {
		return Found{}, errors.New("there is no node to try")
	}
	if len(nodes) > MostNodes {
		return Found{},
			fmt.Errorf("%d nodes are too many: lower --max-nodes to %d, or choose with --node", len(nodes),
				MostNodes)
	}
	world := connectivity.World{Targets: r.Targets}
	ours, err := r.prepare(ctx, &world)
	if ours {
		defer func() { err = errors.Join(err, r.remove(ctx)) }()
	}
	if err != nil {
		return Found{}, err
	}
	r.Progress(fmt.Sprintf("starting a pod on each of %d nodes", len(nodes)))
	started, untried, err := r.listen(ctx, nodes)
	found.Untried = untried
	if err != nil || len(started) == 0 {
		return found, err
	}
	world.Nodes = started
	for _, n := range started {
		found.Nodes = append(found.Nodes, n.Name)
	}
	r.Progress("trying")
	results, untried, err := r.probe(ctx, world)
	found.Results, found.Untried = results, append(found.Untried, untried...)
	return found, err
}

func (r *Runner) remove(ctx context.Context) error {
	r.Progress("removing the pods")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	if left := Clean(ctx, r.Client); left != nil {
		return fmt.Errorf("not everything was removed: %w: run underlayctl connectivity clean", left)
	}
	return nil
}

// prepare creates the Services, and the namespace unless an administrator created it. ours
// reports whether this run created objects in the namespace and has to remove them.
func (r *Runner) prepare(ctx context.Context, w *connectivity.World) (ours bool, err error) {
	existing, err := r.vacated(ctx)
	switch {
	case apierrors.IsNotFound(err):
		_, err = r.Client.CoreV1().Namespaces().Create(ctx, namespace(), metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return false, fmt.Errorf("%w: have an administrator apply deploy/underlayctl/connectivity.yaml, which has the namespace", err)
		}
		ours = !apierrors.IsAlreadyExists(err) // it may exist even if the response was lost
	case err != nil:
	case existing.Labels[Label] == "":
		err = fmt.Errorf("the namespace %s has no label %s, so it is not for this: remove or label it",
			Namespace, Label)
	case existing.DeletionTimestamp != nil:
		err = fmt.Errorf("the namespace %s is being removed, and was not gone within %s: see its status, and try again when it is gone", Namespace, r.Start)
	}
	if err != nil {
		return ours, err
	}
	for _, s := range services() {
		// The first Service is also a lock: only one of two runs can create it.
		made, err := r.Client.CoreV1().Services(Namespace).Create(ctx, s, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return false, fmt.Errorf("another run is in progress in namespace %s: wait for its end, or remove the objects of a crashed one with underlayctl connectivity clean", Namespace)
		}
		if err != nil {
			return ours, fmt.Errorf("create the Service %s: %w", s.Name, err)
		}
		ours = true
		learn(w, made)
	}
	return true, nil
}

// vacated returns the namespace after waiting, at most r.Start, for the deletion of an earlier
// one.
func (r *Runner) vacated(ctx context.Context) (*corev1.Namespace, error) {
	get := func(ctx context.Context) (*corev1.Namespace, error) {
		return r.Client.CoreV1().Namespaces().Get(ctx, Namespace, metav1.GetOptions{})
	}
	ns, err := get(ctx)
	if err != nil || ns.DeletionTimestamp == nil || ns.Labels[Label] == "" {
		return ns, err
	}
	r.Progress("waiting until the namespace of an earlier run is gone")
	late := wait.PollUntilContextTimeout(ctx, vacatedEvery, r.Start, false,
		func(ctx context.Context) (bool, error) {
			ns, err = get(ctx)
			return err != nil || ns.DeletionTimestamp == nil, nil
		})
	if late != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return ns, err
}

const vacatedEvery = 500 * time.Millisecond

func learn(w *connectivity.World, s *corev1.Service) {
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		w.HealthPort = uint16(s.Spec.HealthCheckNodePort)
		return
	}
	w.NodePort = uint16(s.Spec.Ports[0].NodePort)
	for _, text := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil {
			w.ClusterIPs = append(w.ClusterIPs, a)
		}
	}
}

func (r *Runner) listen(
	ctx context.Context, nodes []*corev1.Node,
) ([]connectivity.Node, []connectivity.Untried, error) {
	var pods []*corev1.Pod
	byName := map[string]*corev1.Node{}
	for _, n := range nodes {
		pods, byName[n.Name] = append(pods, listener(r.Image, n.Name)), n
	}
	running, untried, err := r.start(ctx, pods, r.Start, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && len(p.Status.PodIPs) > 0
	})
	var started []connectivity.Node
	for _, p := range running {
		n := connectivity.Node{Name: p.Spec.NodeName, Addresses: primary(byName[p.Spec.NodeName])}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				n.Pods = append(n.Pods, a)
			}
		}
		started = append(started, n)
	}
	return started, untried, err
}

// primary returns the first internal address, at which load balancers reach a node: kube-proxy
// opens node ports there in each of its modes. At others nodePortAddresses may leave them closed.
func primary(n *corev1.Node) []netip.Addr {
	all := kube.InternalIPs(n)
	return all[:min(len(all), 1)]
}

func (r *Runner) probe(
	ctx context.Context, w connectivity.World,
) ([]connectivity.Result, []connectivity.Untried, error) {
	argument, err := worldArg(w)
	if err != nil {
		return nil, nil, err
	}
	var pods []*corev1.Pod
	for _, n := range w.Nodes {
		pods = append(pods, prober(r.Image, n.Name, argument, r.Settle))
	}
	// A trial takes some seconds at most after Settle, and many run concurrently.
	within := r.Start + r.Settle + time.Duration(len(w.Nodes))*2*time.Second
	ended, untried, err := r.start(ctx, pods, within, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded
	})
	if err != nil {
		return nil, untried, err
	}
	var results []connectivity.Result
	for _, p := range ended {
		log, err := r.Logs(ctx, p.Name)
		var some []connectivity.Result
		if err == nil {
			some, err = connectivity.ReadResults(log, connectivity.Plan(p.Spec.NodeName, w))
		}
		results = append(results, some...)
		if err != nil {
			untried = append(untried, connectivity.Untried{
				Node: p.Spec.NodeName, Reason: "reading the log of its pod: " + err.Error(),
			})
		}
	}
	return results, untried, nil
}
