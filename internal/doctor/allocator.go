package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
)

func secondAllocator(x *cluster) []Finding {
	severity, guarded := Error, len(x.policy(policyName)) == 0
	if guarded {
		severity = Warning // what it sets is refused
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

// strangePodCIDRs are signs of another allocator that are younger than the ledger
// and than the latest sign of ours. What is older is the past of a cluster that
// moved here.
func (x *cluster) strangePodCIDRs() []Finding {
	if x.Ledger == nil {
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
		case ipamcontroller.IsAllocator(setter) && at.After(x.Ledger.CreationTimestamp.Time):
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
		What:   fmt.Sprintf("%s set podCIDRs, %s ago last, although Underlay allocates them: of %s", manager, long(x.age(last)), few(names)),
		Remedy: "stop that program from allocating podCIDRs; if it is kube-controller-manager, " + kcmEdit,
	}}
}

// allocating reports whether kube-controller-manager with these arguments runs node
// IPAM.
func allocating(args []string) bool {
	fs := pflag.NewFlagSet(kcmName, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.SetOutput(io.Discard)
	on := fs.Bool("allocate-node-cidrs", false, "")
	controllers := fs.StringSlice("controllers", []string{"*"}, "")
	_ = fs.Parse(args) // what it can't start with it doesn't run with
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

// programs are the pods that run a program by its name, static ones included.
func (x *cluster) programs(name string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range x.Pods {
		line := commandLine(p)
		if p.Labels["component"] == name || len(line) > 0 && (line[0] == name || strings.HasSuffix(line[0], "/"+name)) {
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
