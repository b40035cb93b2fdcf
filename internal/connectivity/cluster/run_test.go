package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

// world is an API server with simple kubelets: run returns the state of a pod as soon as it is
// created, and log its log.
type world struct {
	*fake.Clientset
	run func(*corev1.Pod)
	log func(trials []connectivity.Trial) []byte
}

func newWorld(objects ...runtime.Object) *world {
	w := &world{Clientset: fake.NewClientset(objects...), run: runs, log: opens}
	n := 0
	w.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		n++
		p.Name = fmt.Sprint(p.GenerateName, n)
		w.run(p)
		return false, nil, nil
	})
	w.PrependReactor("create", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s := a.(clienttesting.CreateAction).GetObject().(*corev1.Service)
		s.Spec.ClusterIPs = []string{"10.96.0.9", "fd00:96::9"}
		s.Spec.Ports[0].NodePort, s.Spec.HealthCheckNodePort = 30080, 31000
		return false, nil, nil
	})
	return w
}

func runs(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	if p.Labels[Label] == probeRole {
		p.Status.Phase = corev1.PodSucceeded
	}
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.2"}, {IP: "fd00::2"}}
}

func opens(trials []connectivity.Trial) []byte {
	var results []connectivity.Result
	for _, t := range trials {
		results = append(results, connectivity.Result{Trial: t, Took: 1})
	}
	var out bytes.Buffer
	_ = connectivity.WriteResults(&out, results)
	return out.Bytes()
}

func (w *world) runner() *Runner {
	return &Runner{
		Client: w, Image: "agent:v1", Start: time.Minute, Settle: 10 * time.Second, Progress: func(string) {},
		Logs: func(ctx context.Context, name string) ([]byte, error) {
			p, err := w.CoreV1().Pods(Namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			var from string
			for _, arg := range p.Spec.Containers[0].Args {
				if text, is := strings.CutPrefix(arg, "--from="); is {
					from = text
				}
				if text, is := strings.CutPrefix(arg, "--world="); is {
					var world connectivity.World
					err = json.Unmarshal([]byte(text), &world)
					return w.log(connectivity.Plan(from, world)), err
				}
			}
			return nil, errors.New("it is not told what can be asked")
		},
	}
}

func someNodes(names ...string) (nodes []*corev1.Node) {
	for i, name := range names {
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i+1)}},
			},
		})
	}
	return nodes
}

// left names the remaining objects of a run.
func (w *world) left(t *testing.T) (names []string) {
	t.Helper()
	ctx := context.Background()
	namespaces, err := w.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	pods, err2 := w.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	services, err3 := w.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	for _, x := range namespaces.Items {
		names = append(names, x.Name)
	}
	for _, x := range pods.Items {
		names = append(names, x.Name)
	}
	for _, x := range services.Items {
		names = append(names, x.Name)
	}
	return names
}

func permanent() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{Label: "permanent"}}}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name    string
		objects []runtime.Object
		change  func(*world)
		results int
		untried []string // parts of the reasons
		err     string
		left    string
	}{
		// Each node: 2 nodes × 2 families × 3 kinds, 2 × 2 of the Service, 2 × 2 of node ports.
		{name: "all is well", results: 2 * (12 + 4 + 4)},
		{name: "in an administrator's namespace", objects: []runtime.Object{permanent()}, results: 2 * (12 + 4 + 4), left: "[" + Namespace + "]"},
		{
			name: "an image that is not there", change: func(w *world) {
				w.run = func(p *corev1.Pod) {
					runs(p)
					if p.Spec.NodeName == "b" {
						p.Status = corev1.PodStatus{
							Phase: corev1.PodPending,
							ContainerStatuses: []corev1.ContainerStatus{{
								State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}},
							}},
						}
					}
				}
			},
			results: 6 + 4 + 2, untried: []string{"b: its pod was not ready within 1m0s: ErrImagePull: not found"},
		},
		{
			name: "a probe that fails", change: func(w *world) {
				w.run = func(p *corev1.Pod) {
					if runs(p); p.Labels[Label] == probeRole && p.Spec.NodeName == "a" {
						p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "the node is full"}
					}
				}
			},
			results: 20, untried: []string{"a: its pod failed: OutOfpods: the node is full"},
		},
		{
			name: "a log without its end", change: func(w *world) {
				w.log = func(trials []connectivity.Trial) []byte { return opens(trials)[:300] }
			},
			results: 4, untried: []string{"a: reading the log", "b: reading the log"},
		},
		{
			name: "somebody's namespace of that name", objects: []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}},
			err: "has no label", left: "[" + Namespace + "]",
		},
		{
			name: "another run", objects: []runtime.Object{permanent(), services()[0]},
			err: "another run is in progress", left: "[" + Namespace + " all]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(c.objects...)
				if c.change != nil {
					c.change(w)
				}
				found, err := w.runner().Run(t.Context(), someNodes("a", "b"))
				if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
					t.Fatalf("error %v, want %q", err, c.err)
				}
				if len(found.Results) != c.results {
					t.Errorf("%d results, want %d", len(found.Results), c.results)
				}
				if len(found.Untried) != len(c.untried) {
					t.Fatalf("not tried: %+v, want %q", found.Untried, c.untried)
				}
				for i, u := range found.Untried {
					if text := u.Node + ": " + u.Reason; !strings.Contains(text, c.untried[i]) {
						t.Errorf("%q, want %q", text, c.untried[i])
					}
				}
				want := c.left
				if want == "" {
					want = "[]"
				}
				if got := fmt.Sprint(w.left(t)); got != want {
					t.Errorf("%s is left, want %s", got, want)
				}
			})
		})
	}
}

// The run waits for the deletion of a previous run's namespace, which takes the API server seconds.
func TestTheNamespaceOfTheRunBefore(t *testing.T) {
	for _, c := range []struct {
		name string
		gone time.Duration
		err  string
	}{
		{name: "is gone in a while", gone: 6 * time.Second},
		{name: "never goes", gone: time.Hour, err: "was not gone within 1m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, began := newWorld(), time.Now()
				w.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					if time.Since(began) >= c.gone {
						return false, nil, nil
					}
					ns := permanent()
					ns.DeletionTimestamp = &metav1.Time{Time: began}
					return true, ns, nil
				})
				found, err := w.runner().Run(t.Context(), someNodes("a", "b"))
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) {
						t.Errorf("error %v, want %q", err, c.err)
					}
					return
				}
				if err != nil || len(found.Results) != 40 || len(w.left(t)) > 0 {
					t.Errorf("%d results, left is %v: %v", len(found.Results), w.left(t), err)
				}
			})
		})
	}
}

// Whenever a run is interrupted, it deletes all its objects.
func TestInterrupted(t *testing.T) {
	for step := range 40 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			requests, cleaning := 0, false
			w.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				if requests++; requests == step+1 {
					defer cancel() // it gets a response, and no later one does
				} else if ctx.Err() != nil && !cleaning {
					return true, nil, ctx.Err()
				}
				return false, nil, nil
			})
			run := w.runner()
			run.Progress = func(what string) { cleaning = cleaning || what == "removing the pods" }
			_, err := run.Run(ctx, someNodes("a", "b"))
			if got := w.left(t); len(got) > 0 {
				t.Errorf("interrupted at request %d (%v): %v is left", step+1, err, got)
			}
		})
	}
}

// The objects of a crashed run are removed, and no others.
func TestClean(t *testing.T) {
	p := listener("agent:v1", "a")
	p.Name = "left"
	others := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "others", Namespace: "default"}}
	w := newWorld(namespace(), p, services()[0], services()[1], others)
	for range 2 {
		if err := Clean(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(w.left(t)); got != "[others]" {
			t.Errorf("%s is left", got)
		}
	}
	foreign := newWorld(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}, p)
	if err := Clean(t.Context(), foreign); err == nil || len(foreign.left(t)) != 2 {
		t.Errorf("a namespace that is not ours: %v, %v left", err, foreign.left(t))
	}
}
