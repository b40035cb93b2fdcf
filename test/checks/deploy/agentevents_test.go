package deploy

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const eventsPolicy = "underlay-agent-events"

// eventsAboutItsNode tries to write Events with the token of the agent on the Node self.
func eventsAboutItsNode(t *testing.T, account, admin kubernetes.Interface) {
	await(t, "the policy for Events to be in force", func(ctx context.Context) (bool, error) {
		probe := event("probe", "other")
		_, err := account.CoreV1().Events("default").Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), eventsPolicy), nil
	})
	t.Run("as the agent records them", func(t *testing.T) { recorded(t, account, admin) })

	for what, change := range map[string]func(*corev1.Event){
		"about another Node": func(e *corev1.Event) { e.InvolvedObject.Name = "other" },
		"about a Pod": func(e *corev1.Event) {
			e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "self"}
		},
		"about nothing":          func(e *corev1.Event) { e.InvolvedObject = corev1.ObjectReference{} },
		"of another program":     func(e *corev1.Event) { e.Source.Component = "underlay-ccm" },
		"of no program":          func(e *corev1.Event) { e.Source = corev1.EventSource{} },
		"of an agent elsewhere":  func(e *corev1.Event) { e.Source.Host = "other" },
		"in another's namespace": func(e *corev1.Event) { e.Namespace = "kube-system" },
	} {
		forged := event("forged", "self")
		change(forged)
		_, err := account.CoreV1().Events(forged.Namespace).Create(t.Context(), forged,
			metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("an Event %s: %v, want it forbidden", what, err)
		}
	}

	events := admin.CoreV1().Events("default")
	for _, e := range []*corev1.Event{event("theirs", "other"), event("ours", "self")} {
		if _, err := events.Create(t.Context(), e, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, body := range map[string]string{
		"theirs": `{"involvedObject":{"name":"self"},"source":{"host":"self"},"message":"never mind"}`,
		"ours":   `{"involvedObject":{"name":"other"}}`,
	} {
		_, err := account.CoreV1().Events("default").Patch(t.Context(), name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("patching the Event %s: %v, want it forbidden", name, err)
		}
	}
}

// recorded writes an Event twice with the agent's own recorder: it is created, then patched.
func recorded(t *testing.T, account, admin kubernetes.Interface) {
	broadcaster := record.NewBroadcaster(record.WithContext(t.Context()))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: account.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "underlay-agent", Host: "self"})
	node := nodeNamed(t, admin, "self")
	for range 2 {
		recorder.Event(node, corev1.EventTypeWarning, "PeersUnreachable", "tried by a test")
	}
	await(t, "the Event to be counted", func(ctx context.Context) (bool, error) {
		found, err := admin.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=PeersUnreachable"})
		return err == nil && len(found.Items) == 1 && found.Items[0].Count == 2, err
	})
	broadcaster.Shutdown()
}

// event returns an Event as the agent on the node writes it.
func event(name, node string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: node},
		Source:         corev1.EventSource{Component: "underlay-agent", Host: node},
		Reason:         "Tried", Message: "by a test", Type: corev1.EventTypeWarning, Count: 1,
	}
}
