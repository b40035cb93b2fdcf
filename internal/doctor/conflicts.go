package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
)

const (
	policyName        = "underlay-podcidrs"
	agentPolicyName   = "underlay-agent-node-status"
	kubeletPolicyName = "underlay-kubelet-addresses"
	agentEventsName   = "underlay-agent-events"
	// ownManagers is the prefix of Underlay's field managers.
	ownManagers = "underlay-"
	peerName    = "hcloud-cloud-controller-manager"
	kcmName     = "kube-controller-manager"
	kcmEdit     = "set --allocate-node-cidrs=false in /etc/kubernetes/manifests/kube-controller-manager.yaml on every control-plane node (kubeadm: controllerManager.extraArgs)"
)

func conflictChecks() []check {
	return []check{
		newCheck("second-allocator", Error, (*cluster).allocates,
			survey.PartWorkloads|survey.PartNodes|survey.PartLedger|survey.PartSetup,
			kcmEdit, secondAllocator),
		newCheck("admission-policies", Warning, nil,
			survey.PartSetup|survey.PartWorkloads|survey.PartConfig,
			"kubectl apply -f deploy/ccm/podcidr-policy.yaml -f deploy/ccm/kubelet-policy.yaml -f deploy/agent/node-status-policy.yaml -f deploy/agent/events-policy.yaml",
			admissionPolicies),
		newCheck("other-cloud-controller", Error, nil, survey.PartWorkloads|survey.PartSetup,
			"delete it: only one cloud controller manager may work in a cluster", otherCloudController),
		newCheck("other-pod-network", Error, nil, survey.PartWorkloads,
			"remove one of the two pod networks", otherPodNetwork),
		newCheck("agent", Error, nil, survey.PartWorkloads|survey.PartNodes|survey.PartConfig,
			"kubectl -n "+here+" describe pod -l app.kubernetes.io/name=underlay-agent; "+agentLogs,
			agentReady),
		newCheck("network-policy", Warning, nil,
			survey.PartConfig|survey.PartWorkloads|survey.PartNetworkPolicies,
			"set networkPolicy to off in the configuration of underlay-ccm and its agents, or remove the other program", networkPolicies),
	}
}

// admissionPolicies tests the policies of the programs that run.
func admissionPolicies(x *cluster) (found []Finding) {
	if x.allocates() {
		found = x.policy(policyName)
	}
	found = append(found, x.policy(kubeletPolicyName)...)
	if x.agents() != nil {
		found = slices.Concat(found, x.policy(agentPolicyName), x.policy(agentEventsName))
	}
	return found
}

// policy returns a finding if an admission policy or its binding is missing or ineffective.
func (x *cluster) policy(name string) []Finding {
	if !slices.ContainsFunc(x.Policies, func(p *admissionv1.ValidatingAdmissionPolicy) bool {
		return p.Name == name
	}) {
		return []Finding{
			{Object: "ValidatingAdmissionPolicy/" + name, What: "there is no such admission policy"},
		}
	}
	binds := func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool {
		return b.Spec.PolicyName == name
	}
	i := slices.IndexFunc(x.PolicyBindings, binds)
	switch {
	case i < 0:
		return []Finding{
			{
				Object: "ValidatingAdmissionPolicyBinding/" + name,
				What:   "the admission policy is there, but no binding puts it into force",
			},
		}
	case !slices.ContainsFunc(x.PolicyBindings,
		func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return binds(b) && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
		}):
		return []Finding{about("ValidatingAdmissionPolicyBinding/"+x.PolicyBindings[i].Name,
			"the binding's validationActions are %v, so nothing is rejected",
			x.PolicyBindings[i].Spec.ValidationActions)}
	}
	return nil
}

// workload is a Deployment, a DaemonSet or a Pod without one.
type workload struct {
	kind, namespace, name string
	wanted                int32
	images                []string
}

func (w workload) object() string { return w.kind + "/" + w.namespace + "/" + w.name }

func (w workload) remedy() string {
	return fmt.Sprintf("kubectl -n %s delete %s %s", w.namespace, strings.ToLower(w.kind), w.name)
}

// workloads includes kube-system, and pods without a ReplicaSet or DaemonSet.
func (x *cluster) workloads() []workload {
	var out []workload
	add := func(kind string, meta metav1.ObjectMeta, wanted int32, spec corev1.PodSpec) {
		w := workload{kind: kind, namespace: meta.Namespace, name: meta.Name, wanted: wanted}
		for _, c := range spec.Containers {
			w.images = append(w.images, c.Image)
		}
		out = append(out, w)
	}
	for _, d := range x.Deployments {
		wanted := int32(1)
		if d.Spec.Replicas != nil {
			wanted = *d.Spec.Replicas
		}
		add("Deployment", d.ObjectMeta, max(wanted, d.Status.Replicas), d.Spec.Template.Spec)
	}
	for _, d := range x.DaemonSets {
		add("DaemonSet", d.ObjectMeta, max(1, d.Status.DesiredNumberScheduled), d.Spec.Template.Spec)
	}
	for _, p := range x.Pods {
		owned := slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind == "ReplicaSet" || o.Kind == "DaemonSet"
		})
		if !owned && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			add("Pod", p.ObjectMeta, 1, p.Spec)
		}
	}
	return out
}

// program reports whether a workload or one of its images has the name.
func (w workload) program(name string) bool {
	return w.name == name || slices.ContainsFunc(w.images, func(image string) bool {
		base, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
		base, _, _ = strings.Cut(base, ":")
		return base == name
	})
}

func otherCloudController(x *cluster) (found []Finding) {
	for _, w := range x.workloads() {
		if w.wanted > 0 && w.program(peerName) {
			found = append(found, Finding{
				Object: w.object(), Remedy: w.remedy(),
				What: fmt.Sprintf("the Hetzner cloud controller manager is still there, with %d wanted: whichever of the two has the lease works, the other waits", w.wanted),
			})
		}
	}
	if x.Lease == nil {
		return found
	}
	if holder := leaseWriter(x.Lease.ManagedFields); strings.HasSuffix(holder,
		"cloud-controller-manager") {
		found = append(found, Finding{
			Object: x.leaseObject(),
			What:   fmt.Sprintf("%s wrote the lease last, and Underlay waits for it", holder),
			Remedy: "stop " + holder + ", wherever it runs",
		})
	}
	return found
}

// mentions reports whether the name or an image of a workload contains the word.
func (w workload) mentions(word string) bool {
	return slices.ContainsFunc(append(w.images, w.name), func(text string) bool {
		return strings.Contains(text, word)
	})
}

func otherPodNetwork(x *cluster) (found []Finding) {
	networks := []string{
		"flannel", "calico-node", "cilium", "kube-router", "weave-kube", "kindnetd", "kube-ovn", "antrea",
		"ovn-kubernetes",
	}
	for _, w := range x.workloads() {
		if i := slices.IndexFunc(networks, w.mentions); i >= 0 && w.kind == "DaemonSet" {
			found = append(found, Finding{
				Object: w.object(),
				Remedy: w.remedy() + ", then remove its file from /etc/cni/net.d on every node",
				What:   "another pod network is installed: " + networks[i],
			})
		}
	}
	return found
}

// networkPolicies finds programs that enforce NetworkPolicies beside the agents, or none at all,
// and what can't work in the policies.
func networkPolicies(x *cluster) (found []Finding) {
	for _, w := range x.workloads() {
		if w.kind == "DaemonSet" && w.mentions("kube-network-policies") {
			found = append(found, Finding{Object: w.object(), What: "it enforces NetworkPolicies, and so do the agents: each drops what the other has not learned yet"})
		}
	}
	if !x.Config.NetworkPolicy {
		others := len(found) > 0 || len(otherPodNetwork(x)) > 0
		if found = nil; !others && x.NetworkPolicies != nil {
			found = unseen("networkPolicy is off, and no program that enforces NetworkPolicies is seen in kube-system: unless one runs elsewhere, they have no effect")
		}
	}
	if x.NetworkPolicies != nil {
		for _, w := range x.NetworkPolicies.Warnings() {
			found = append(found, Finding{
				Object: "NetworkPolicy/" + w.Policy.String(), What: w.Text,
				Remedy: "correct the policy, or create what it refers to: kubectl -n " + w.Policy.Namespace +
					" edit networkpolicy " + w.Policy.Name,
			})
		}
	}
	return found
}

func secondAllocator(x *cluster) []Finding {
	severity, guarded := Error, len(x.policy(policyName)) == 0
	if guarded {
		severity = Warning // the policy rejects its podCIDRs
	}
	var found []Finding
	managers := x.programs(kcmName)
	for _, p := range managers {
		if allocating(commandLine(p)) {
			found = append(found, Finding{
				Severity: severity, Object: "Pod/" + p.Namespace + "/" + p.Name,
				What: kcmName + " allocates podCIDRs too: it runs with --allocate-node-cidrs",
			})
		}
	}
	found = append(found, x.strangePodCIDRs()...)
	if len(managers) == 0 && len(found) == 0 {
		return unseen("no pod of kube-controller-manager is seen in kube-system, so its arguments are not known: it must not run with --allocate-node-cidrs")
	}
	return found
}

// strangePodCIDRs finds podCIDRs of another allocator that are newer than the ledger and newer
// than our last one. Older ones are from before the migration to Underlay.
func (x *cluster) strangePodCIDRs() []Finding {
	made, inUse := x.Ledger.Made()
	if !inUse {
		return nil
	}
	var ours, last time.Time
	var names []string
	var manager string
	for _, n := range x.Nodes {
		setter, at, ok := kube.PodCIDRSetter(n)
		switch {
		case !ok:
		case strings.HasPrefix(setter, ownManagers):
			if at.After(ours) {
				ours = at
			}
		case ipamcontroller.IsAllocator(setter) && at.After(made):
			names = append(names, n.Name)
			if at.After(last) {
				last, manager = at, setter
			}
		}
	}
	if len(names) == 0 || !last.After(ours) {
		return nil
	}
	return []Finding{{
		Object: "Node/" + names[0],
		What: fmt.Sprintf("%s set podCIDRs, %s ago last, although Underlay allocates them: of %s",
			manager, duration.HumanDuration(x.age(last)), few(names)),
		Remedy: "stop that program from allocating podCIDRs; if it is kube-controller-manager, " +
			kcmEdit,
	}}
}

// allocating reports whether kube-controller-manager with these arguments runs node IPAM.
func allocating(args []string) bool {
	fs := pflag.NewFlagSet(kcmName, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.SetOutput(io.Discard)
	on := fs.Bool("allocate-node-cidrs", false, "")
	controllers := fs.StringSlice("controllers", []string{"*"}, "")
	_ = fs.Parse(args) // kube-controller-manager exits on invalid flags too
	for _, name := range []string{"node-ipam-controller", "nodeipam"} {
		if slices.Contains(*controllers, "-"+name) {
			return false
		}
		if slices.Contains(*controllers, name) {
			return *on
		}
	}
	return *on && slices.Contains(*controllers, "*")
}

func (x *cluster) programs(name string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range x.Pods {
		line := commandLine(p)
		if p.Labels["component"] == name ||
			len(line) > 0 && (line[0] == name || strings.HasSuffix(line[0], "/"+name)) {
			out = append(out, p)
		}
	}
	return out
}

func commandLine(p *corev1.Pod) []string {
	if len(p.Spec.Containers) == 0 {
		return nil
	}
	c := p.Spec.Containers[0]
	return slices.Concat(c.Command, c.Args)
}
