package survey

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

const (
	system       = metav1.NamespaceSystem
	policyPrefix = "underlay-"
)

// kubeError is a failed request to the API server.
type kubeError struct {
	verb, resource, where string
	err                   error
}

func (e *kubeError) Error() string {
	what := e.verb + " " + e.resource + e.where
	switch {
	case apierrors.IsForbidden(e.err):
		return fmt.Sprintf("not allowed to %s: ask for a role with the verb %q on %q%s", what, e.verb,
			e.resource, e.where)
	case apierrors.IsUnauthorized(e.err):
		return fmt.Sprintf("the API server refuses the credentials of the kubeconfig (%s: %v): renew them, or choose others with --context or --kubeconfig", what, e.err)
	default:
		return fmt.Sprintf("the API server doesn't respond (%s: %v): check the address in the kubeconfig and that it can be reached from here", what, e.err)
	}
}

func (e *kubeError) Unwrap() error { return e.err }

func inNamespace(namespace, name string) string {
	if name == "" {
		return " in namespace " + namespace
	}
	return fmt.Sprintf(" named %s in namespace %s", name, namespace)
}

// listed returns a complete list, read page by page. list is the List method of a typed client.
func listed[T any, L runtime.Object](
	ctx context.Context, resource, where string,
	list func(context.Context, metav1.ListOptions) (L, error), selected ...fields.Set,
) ([]*T, error) {
	var options metav1.ListOptions
	for _, fields := range selected {
		options.FieldSelector = fields.String()
	}
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, o)
	}
	var out []*T
	err := pager.New(page).EachListItem(ctx, options, func(object runtime.Object) error {
		item, ok := any(object).(*T)
		if !ok {
			return fmt.Errorf("a list of %s holds a %T", resource, object)
		}
		out = append(out, item)
		return nil
	})
	if err != nil {
		return nil, &kubeError{"list", resource, where, err}
	}
	return out, nil
}

func byName(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) }

func byNamespace(a, b *corev1.Service) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func byTime(a, b *corev1.Event) int { return EventTime(a).Compare(EventTime(b)) }

func (c *collector) nodes(ctx context.Context) (err error) {
	c.s.Nodes, err = listed[corev1.Node](ctx, "nodes", "", c.Client.CoreV1().Nodes().List)
	slices.SortFunc(c.s.Nodes, byName)
	return err
}

func (c *collector) ledger(ctx context.Context) (err error) {
	if c.s.Ledger[0], err = c.configMap(ctx, ipamcontroller.LedgerName); err != nil {
		return err // of the first one, always the same
	}
	group, ctx := errgroup.WithContext(ctx)
	for object := 1; object < len(c.s.Ledger); object++ {
		group.Go(func() (err error) {
			c.s.Ledger[object], err = c.configMap(ctx, ipamcontroller.ObjectName(object))
			return err
		})
	}
	return group.Wait()
}

func (c *collector) routeRecord(ctx context.Context) (err error) {
	c.s.RouteRecord, err = c.configMap(ctx, routecontroller.RecordName)
	return err
}

func (c *collector) addressLedger(ctx context.Context) (err error) {
	c.s.AddressLedger, err = c.configMap(ctx, addresses.LedgerName)
	return err
}

// configMap returns a ConfigMap of kube-system, or nil.
func (c *collector) configMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	found, err := c.Client.CoreV1().ConfigMaps(system).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, &kubeError{"get", "configmaps", inNamespace(system, name), err}
	}
	return found, nil
}

// serviceCIDRs finds none on API servers before 1.33, which lack networking.k8s.io/v1
// ServiceCIDR.
func (c *collector) serviceCIDRs(ctx context.Context) error {
	found, err := listed[networkingv1.ServiceCIDR](ctx, "servicecidrs.networking.k8s.io", "",
		c.Client.NetworkingV1().ServiceCIDRs().List)
	if apierrors.IsNotFound(err) {
		return nil
	}
	for _, r := range found {
		for _, text := range r.Spec.CIDRs {
			// The API server validates the CIDRs, so none is skipped.
			if p, err := netip.ParsePrefix(text); err == nil {
				c.s.ServiceCIDRs = append(c.s.ServiceCIDRs, p.Masked())
			}
		}
	}
	return err
}

func (c *collector) services(ctx context.Context) (err error) {
	c.s.Services, err = listed[corev1.Service](ctx, "services", "",
		c.Client.CoreV1().Services(metav1.NamespaceAll).List)
	slices.SortFunc(c.s.Services, byNamespace)
	return err
}

func (c *collector) endpointSlices(ctx context.Context) (err error) {
	c.s.EndpointSlices, err = listed[discoveryv1.EndpointSlice](ctx, "endpointslices.discovery.k8s.io",
		"", c.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List)
	return err
}

func (c *collector) events(ctx context.Context) (err error) {
	namespace, where := metav1.NamespaceAll, ""
	var selected []fields.Set
	switch svc := c.want.Service; {
	case c.want.Node != "":
		selected = []fields.Set{{"involvedObject.kind": "Node", "involvedObject.name": c.want.Node}}
	case svc.Name != "":
		namespace, where = svc.Namespace, inNamespace(svc.Namespace, "")
		selected = []fields.Set{{"involvedObject.kind": "Service", "involvedObject.name": svc.Name}}
	}
	list := c.Client.CoreV1().Events(namespace).List
	c.s.Events, err = listed[corev1.Event](ctx, "events", where, list, selected...)
	slices.SortStableFunc(c.s.Events, byTime)
	return err
}

// workloads includes kube-system, which has kubeadm's components and often other controllers.
func (c *collector) workloads(ctx context.Context) error {
	for _, namespace := range slices.Compact([]string{c.s.Namespace, system}) {
		if err := c.workloadsOf(ctx, namespace); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) workloadsOf(ctx context.Context, namespace string) error {
	where := inNamespace(namespace, "")
	deployments, err := listed[appsv1.Deployment](ctx, "deployments.apps", where,
		c.Client.AppsV1().Deployments(namespace).List)
	if err != nil {
		return err
	}
	daemonSets, err := listed[appsv1.DaemonSet](ctx, "daemonsets.apps", where,
		c.Client.AppsV1().DaemonSets(namespace).List)
	if err != nil {
		return err
	}
	pods, err := listed[corev1.Pod](ctx, "pods", where, c.Client.CoreV1().Pods(namespace).List)
	c.s.Deployments = append(c.s.Deployments, deployments...)
	c.s.DaemonSets = append(c.s.DaemonSets, daemonSets...)
	c.s.Pods = append(c.s.Pods, pods...)
	return err
}

func (c *collector) setup(ctx context.Context) error {
	var err error
	if c.s.KubeProxy, err = c.configMap(ctx, kube.ProxyConfigMap); err != nil {
		return err
	}
	name := c.s.LeaseName
	lease, err := c.Client.CoordinationV1().Leases(name.Namespace).Get(ctx, name.Name,
		metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return &kubeError{
			"get", "leases.coordination.k8s.io", inNamespace(name.Namespace, name.Name), err,
		}
	default:
		c.s.Lease = lease
	}
	return c.policies(ctx)
}

func (c *collector) policies(ctx context.Context) error {
	const group = ".admissionregistration.k8s.io"
	client := c.Client.AdmissionregistrationV1()
	policies, err := listed[admissionv1.ValidatingAdmissionPolicy](ctx,
		"validatingadmissionpolicies"+group, "", client.ValidatingAdmissionPolicies().List)
	if err != nil {
		return err
	}
	bindings, err := listed[admissionv1.ValidatingAdmissionPolicyBinding](ctx,
		"validatingadmissionpolicybindings"+group, "", client.ValidatingAdmissionPolicyBindings().List)
	c.s.Policies, c.s.PolicyBindings = ownPolicies(policies), ownPolicies(bindings)
	return err
}

func ownPolicies[T metav1.Object](all []T) []T {
	return slices.DeleteFunc(all, func(o T) bool {
		return !strings.HasPrefix(o.GetName(), policyPrefix)
	})
}
