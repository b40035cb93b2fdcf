package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
)

const (
	managerName = "underlay-ccm"
	agentName   = "underlay-agent"
	nameLabel   = "app.kubernetes.io/name"
	// here is the placeholder for the programs' namespace in remedies, see placed.
	here        = "{namespace}"
	managerLogs = "kubectl -n " + here + " logs deployment/underlay-ccm"
	// skew is the assumed maximum difference between clocks.
	skew = 30 * time.Second
)

func managerChecks() []check {
	return []check{
		newCheck("configuration", Error, nil, 0,
			"correct it, then kubectl -n "+here+" rollout restart deployment/underlay-ccm", configuration),
		newCheck("cloud-access", Error, (*cluster).onCloud, 0,
			"give a token of the cluster's project, and the ID or name of its network in underlay-config (key network)", cloudAccess),
		newCheck("cloud-controller", Error, nil, survey.PartWorkloads,
			"kubectl -n "+here+" describe pod -l app.kubernetes.io/name=underlay-ccm; "+managerLogs,
			cloudController),
		newCheck("leader", Error, nil, survey.PartSetup,
			"see why the cloud controller manager doesn't run: "+managerLogs, leader),
	}
}

func configuration(x *cluster) (found []Finding) {
	for _, e := range x.ConfigErrors {
		found = append(found, Finding{
			Object: e.Field, What: valued(e.Value, e.Problem), Remedy: e.Remedy,
		})
	}
	for _, w := range x.ConfigWarnings {
		found = append(found, Finding{Severity: Warning, Object: w.Field, What: w.Problem})
	}
	if reason, blind := x.blind(survey.PartConfig); blind && len(found) == 0 {
		return unseen(reason)
	}
	return found
}

func valued(value, problem string) string {
	if value == "" {
		return problem
	}
	return fmt.Sprintf("%q %s", value, problem)
}

// cloudAccess reports why the cloud could not be read.
func cloudAccess(x *cluster) []Finding {
	for _, gap := range x.Gaps {
		switch {
		case gap.Part&survey.Cloud == 0 || gap.Err == nil:
		case errors.Is(gap.Err, hetzner.ErrNoNetwork):
			return []Finding{{What: fmt.Sprintf("the token's project has no network %q", x.Config.Network)}}
		case hetzner.Unauthorized(gap.Err):
			return []Finding{{
				What: "the cloud refuses the token that underlayctl was given",
				Remedy: "give a valid one; and see that the Secret " + here +
					"/hcloud (key token) holds a valid one for the cloud controller manager",
			}}
		}
	}
	if reason, blind := x.blind(survey.PartServers | survey.PartNetwork); blind {
		return unseen(reason)
	}
	if reason, blind := x.blind(survey.PartNodes); blind {
		return unseen(reason)
	}
	if _, err := x.Gateways(); err != nil {
		return []Finding{{What: err.Error()}}
	}
	return nil
}

func cloudController(x *cluster) []Finding {
	i := slices.IndexFunc(x.Deployments, func(d *appsv1.Deployment) bool {
		return d.Name == managerName || d.Labels[nameLabel] == managerName
	})
	if i < 0 && x.Saw(survey.PartSetup) && len(leader(x)) == 0 {
		return nil // it is deployed differently; the check configuration reports unknown flags
	}
	if i < 0 {
		return unseen("there is no Deployment underlay-ccm in " + x.Namespace + ": name the namespace that it is in with --namespace; where it runs in another way, see that it does")
	}
	d := x.Deployments[i]
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	f := Finding{Object: "Deployment/" + d.Namespace + "/" + d.Name}
	switch have := d.Status.AvailableReplicas; {
	case wanted == 0:
		f.What, f.Remedy = "0 replicas are wanted: no cloud controller manager runs", "kubectl -n "+
			d.Namespace+" scale deployment "+d.Name+" --replicas=2"
	case have == 0:
		f.What = fmt.Sprintf("none of %d replicas is available", wanted)
	case have < wanted:
		f.Severity, f.What = Warning, fmt.Sprintf("%d of %d replicas are available", have, wanted)
	default:
		return nil
	}
	return []Finding{f}
}

func (x *cluster) leaseObject() string { return "Lease/" + x.LeaseName.String() }

func leader(x *cluster) []Finding {
	if x.Lease == nil {
		return []Finding{
			{Object: x.leaseObject(), What: "there is no lease: no cloud controller manager has ever led"},
		}
	}
	spec := x.Lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil {
		return []Finding{
			{Object: x.leaseObject(), What: "the lease has no holder: no cloud controller manager leads"},
		}
	}
	lasts := kube.DefaultLease
	if spec.LeaseDurationSeconds != nil {
		lasts = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	if since := x.age(spec.RenewTime.Time); since > lasts+skew {
		return []Finding{about(x.leaseObject(),
			"%s held the lease and has not renewed it for %s; it lasts %s", *spec.HolderIdentity,
			duration.HumanDuration(since), duration.HumanDuration(lasts))}
	}
	return nil
}

// leaseWriter returns the field manager that renewed a Lease last.
func leaseWriter(entries []metav1.ManagedFieldsEntry) string {
	var manager string
	var last time.Time
	for _, e := range entries {
		renews := e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), []byte(`"f:renewTime"`))
		if renews && e.Time != nil && !e.Time.Time.Before(last) {
			manager, last = e.Manager, e.Time.Time
		}
	}
	return manager
}
