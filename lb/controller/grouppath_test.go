package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/lb"
)

// ends lists, sorted, the final sharers of each load balancer, and the Services' conditions.
func (w *world) ends() string {
	lines := strings.Split(w.shared(), "\n")
	all, err := w.api.CoreV1().Services("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range all.Items {
		svc := &all.Items[i]
		if !svc.DeletionTimestamp.IsZero() && len(svc.Finalizers) == 0 {
			continue
		}
		at := ""
		for _, s := range w.cloud.all() {
			for _, in := range svc.Status.LoadBalancer.Ingress {
				if in.IP == s.IPv4.String() {
					at += " at " + s.Name
				}
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s%s %v", svc.Name, accepted(svc), at, svc.Finalizers))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// With any order of creations, changes, failures and deletions, and any restarts, the result is as
// if the final Services had just been created, and load balancers of other owners don't change.
func TestGroupsDoNotDependOnThePath(t *testing.T) {
	foreign := lb.State{ID: 50, Name: "foreign", Type: "lb11", Location: "fsn1", Public: true, Labels: map[string]string{"a": "b"}}
	for _, conflicts := range []bool{false, true} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("conflicts %t seed %d", conflicts, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 7))
				last, edited, fresh := map[string]*corev1.Service{}, "", ""
				inWorld(t, newCloud(foreign), nodes(2), func(w *world) {
					w.stop()
					// Too small a type makes the result depend on earlier ports.
					w.defaults.Type = "lb21"
					w.start()
					w.refuseOtherUIDs()
					before := w.cloud.all()[0]
					var tried, killed atomic.Int64
					w.cloud.setFault(func(lb.Op) error {
						n := tried.Add(1)
						switch {
						case n%7 == 0:
							return errors.New("it will pass")
						case n%11 == 0:
							killed.Store(1)
							w.kill()
						}
						return nil
					})
					for range 14 {
						w.randomStep(r, last, conflicts)
						if r.IntN(3) == 0 {
							time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
						}
						if r.IntN(5) == 0 || killed.Swap(0) == 1 {
							w.restart()
						}
					}
					w.cloud.setFault(nil)
					w.restart()
					for range 4 {
						w.later()
					}
					edited = w.ends()
					if after := w.cloud.all()[0]; fmt.Sprint(after) != fmt.Sprint(before) {
						t.Errorf("somebody else's load balancer changed: %v", after)
					}
					w.cloud.counts()
					w.written()
					w.later()
					if _, writes := w.cloud.counts(); len(writes) > 0 || w.written() > 0 {
						t.Errorf("not at rest: %v", writes)
					}
				})
				inWorld(t, newCloud(foreign), nodes(2), func(w *world) {
					w.stop()
					w.defaults.Type = "lb21"
					w.start()
					w.createAll(slices.Collect(maps.Values(last))...)
					w.later()
					fresh = w.ends()
				})
				if edited != fresh {
					t.Errorf("after edits:\n%s\nfresh:\n%s", edited, fresh)
				}
			})
		}
	}
}

// refuseOtherUIDs rejects patches with another Service's UID, as the API server does.
func (w *world) refuseOtherUIDs() {
	w.api.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		live, err := w.api.Tracker().Get(a.GetResource(), a.GetNamespace(), patch.GetName())
		if err != nil {
			return true, nil, err
		}
		if uid := live.(*corev1.Service).UID; !strings.Contains(string(patch.GetPatch()), fmt.Sprintf(`"uid":%q`, uid)) {
			return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), patch.GetName(), nil)
		}
		return false, nil, nil
	})
}

// randomStep creates, changes or deletes a Service, and updates all. With conflicts, Services
// request each other's ports; without, they move between load balancers.
func (w *world) randomStep(r *rand.Rand, all map[string]*corev1.Service, conflicts bool) {
	w.t.Helper()
	i := r.IntN(4)
	name := fmt.Sprint("s", i)
	services := w.api.CoreV1().Services("default")
	ctx := context.Background()
	live, err := services.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case !live.DeletionTimestamp.IsZero() && len(live.Finalizers) > 0:
		return
	case !live.DeletionTimestamp.IsZero(): // the fake keeps objects that the API server removes
		if err := services.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
		live = nil
	}
	base := int32(80 + 10*i)
	ports := []int32{base + r.Int32N(3)}
	if conflicts {
		ports = append(ports, 70+r.Int32N(2))
	}
	svc := sharing(name, i, ports...)
	if !conflicts {
		switch group := pickOf(r, "edge", "other", ""); group {
		case "":
			delete(svc.Annotations, lb.AnnotationShared)
		default:
			svc.Annotations[lb.AnnotationShared] = group
		}
	}
	if r.IntN(3) == 0 {
		svc.Annotations[lb.HetznerPrefix+"algorithm-type"] = pickOf(r, "round_robin", "least_connections")
	}
	_, there := all[name]
	switch {
	case there && r.IntN(3) == 0:
		delete(all, name)
		w.patch(live, map[string]any{"deletionTimestamp": time.Now().UTC().Format(time.RFC3339)}, nil)
	case there:
		svc.UID = live.UID
		all[name] = svc
		annotations := map[string]any{}
		for name := range live.Annotations {
			annotations[name] = nil
		}
		for name, value := range svc.Annotations {
			annotations[name] = value
		}
		w.patch(live, map[string]any{"annotations": annotations}, svc.Spec.Ports)
	default:
		svc.UID = types.UID(fmt.Sprintf("%s-%d-uid", name, r.IntN(1e6)))
		all[name] = svc
		_, err = services.Create(ctx, svc.DeepCopy(), metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// patch changes a Service without a conflict with the controller's writes.
func (w *world) patch(svc *corev1.Service, metadata map[string]any, ports []corev1.ServicePort) {
	w.t.Helper()
	metadata["uid"] = svc.UID
	patch := map[string]any{"metadata": metadata}
	if ports != nil {
		patch["spec"] = map[string]any{"ports": ports}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.api.CoreV1().Services(svc.Namespace).Patch(context.Background(), svc.Name,
		types.MergePatchType, text, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func pickOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }
