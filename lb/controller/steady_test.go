package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// servers returns the targets of the only load balancer.
func (w *world) servers() (ids []int64) {
	for _, target := range w.cloud.all()[0].Targets {
		ids = append(ids, target.Server)
	}
	return ids
}

// replaceNodes deletes all nodes and adds others.
func (w *world) replaceNodes(old, fresh int) {
	w.t.Helper()
	for i := range old {
		if err := w.api.CoreV1().Nodes().Delete(context.Background(), fmt.Sprintf("node-%d", i+1), metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	for i := range fresh {
		if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node(fmt.Sprintf("fresh-%d", i), 100+i), metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.later()
}

// Targets at public addresses need no network: a failing attachment must not keep them from
// following the nodes.
func TestTargetsFollowTheNodesOutsideTheNetwork(t *testing.T) {
	for name, refusal := range map[string]error{
		"refused":     &lb.RejectedError{Code: "no_subnet_available", Message: "no subnet"},
		"unreachable": errors.New("unreachable"),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), nodes(2), func(w *world) {
				w.create(service("web"))
				w.cloud.change(w.cloud.all()[0].ID, func(s *lb.State) { s.Network = 0 })
				w.cloud.setFault(func(op lb.Op) error {
					if _, ok := op.(lb.AttachNetwork); ok {
						return refusal
					}
					return nil
				})
				w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"algorithm-type"] = "least_connections" })
				w.replaceNodes(2, 2)
				if got := w.servers(); !slices.Equal(got, []int64{100, 101}) {
					t.Errorf("targets %v, want the new nodes", got)
				}
				if got := accepted(w.service("web")); name == "refused" && got != "False Rejected" {
					t.Errorf("accepted %s", got)
				}
			})
		})
	}
}

// While the network can't be attached, the public interface is the only one, and is kept.
func TestNetworkThatCannotBeJoinedCostsNoPublicInterface(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		w.cloud.change(w.cloud.all()[0].ID, func(s *lb.State) { s.Network = 0 })
		w.cloud.setFault(func(op lb.Op) error {
			if _, ok := op.(lb.AttachNetwork); ok {
				return errors.New("unreachable")
			}
			return nil
		})
		w.cloud.counts()
		w.edit("web", func(svc *corev1.Service) {
			toPrivate(svc)
			svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "true"
			svc.Spec.Ports[0].NodePort = 30081
		})
		w.later()
		_, writes := w.cloud.counts()
		for _, op := range []string{"remove server 1", "add server 1 (private)", "set public interface false"} {
			if slices.Contains(writes, op) {
				t.Errorf("tried to %s", op)
			}
		}
		if s := w.cloud.all()[0]; !s.Public || len(s.Targets) != 2 ||
			s.Listeners[0].DestinationPort != 30081 {
			t.Errorf("%s", w.cloud)
		}
	})
}

// A failing certificate for other domains does not keep the targets from following the nodes.
func TestTargetsFollowTheNodesWithoutANewCertificate(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		svc := service("web")
		https(svc, "certificate-type", "managed", "http-managed-certificate-domains", "example.com")
		w.create(svc)
		w.cloud.setFault(func(op lb.Op) error {
			if _, ok := op.(lb.CreateCertificate); ok {
				return &lb.RejectedError{Code: "resource_limit_exceeded", Message: "no more certificates"}
			}
			return nil
		})
		w.edit("web", func(svc *corev1.Service) { https(svc, "http-managed-certificate-domains", "example.com,example.org") })
		w.replaceNodes(2, 2)
		if got := w.servers(); !slices.Equal(got, []int64{100, 101}) {
			t.Errorf("targets %v, want the new nodes", got)
		}
		if got := accepted(w.service("web")); got != "False Rejected" {
			t.Errorf("accepted %s", got)
		}
	})
}

// A failed takeover is not reported as accepted.
func TestTakeoverThatFailsIsNotAccepted(t *testing.T) {
	inWorld(t, newCloud(peers("awebuid")), nodes(1), func(w *world) {
		w.cloud.setFault(func(lb.Op) error { return errors.New("unreachable") })
		w.create(takenOver())
		w.later()
		if got := accepted(w.service("web")); got != "Unknown Pending" {
			t.Errorf("accepted %s", got)
		}
		w.cloud.setFault(nil)
		w.later()
		if got := accepted(w.service("web")); got != "True Accepted" {
			t.Errorf("accepted %s", got)
		}
	})
}

// If the cloud rejects private targets, nodes that replace all others get public targets as those
// had.
func TestNewNodesAreReachedAsTheOthersWherePrivateTargetsAreRefused(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		w.healthy(1, 0)
		noPrivateTargets(w, 1)
		w.edit("web", toPrivate)
		w.replaceNodes(1, 1)
		if got := w.servers(); !slices.Equal(got, []int64{100}) {
			t.Errorf("targets %v, want the new node", got)
		}
	})
}

// The only target is added again although the first attempt failed.
func TestTheOnlyTargetComesBack(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		fails := 1
		w.cloud.setFault(func(op lb.Op) error {
			add, ok := op.(lb.AddTarget)
			switch {
			case ok && add.Target.Private:
				return &lb.RejectedError{Code: "resolve_cloud_private_targets_error", Message: "the server is not in the network", Target: true}
			case ok && fails > 0:
				fails--
				return errors.New("unreachable")
			}
			return nil
		})
		w.edit("web", toPrivate)
		w.later()
		if got := w.servers(); !slices.Equal(got, []int64{1}) {
			t.Errorf("targets %v", got)
		}
	})
}
