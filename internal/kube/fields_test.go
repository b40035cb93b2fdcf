package kube_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/internal/kube"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// named are a Node's name, taints and one annotation, which is no other Node's.
func named() kube.Fields {
	annotations := kube.Annotations(func(node, key string) bool { return node == "one" && key == "read" })
	return kube.Fields{1: {Of: kube.Fields{1: {}, 12: annotations}}, 2: {Of: kube.Fields{5: {}}}}
}

func whole() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "u", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"another": "x", "read": "y", "z": ""}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}, {Key: "v"}}},
		Status:     corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"large"}, SizeBytes: 1}}},
	}
}

func narrowed() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Annotations: map[string]string{"read": "y"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}, {Key: "v"}}},
	}
}

// api answers everything with the same bytes.
func api(t *testing.T, contentType string, status int, body []byte) (kubernetes.Interface, kubernetes.Interface) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	to := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: protobufType}}
	client, err := kubernetes.NewForConfig(to)
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := kube.ReadingOnly(named(), client, to)
	if err != nil {
		t.Fatal(err)
	}
	return narrow, client
}

func encoded(t testing.TB, mediaType string, o runtime.Object) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatalf("no serializer of %s", mediaType)
	}
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), o)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestReadingOnlyNodes(t *testing.T) {
	ctx := t.Context()
	narrow, client := api(t, protobufType, http.StatusOK, encoded(t, protobufType, whole()))
	if got, err := narrow.CoreV1().Nodes().Get(ctx, "one", metav1.GetOptions{}); err != nil || !reflect.DeepEqual(got, narrowed()) {
		t.Errorf("GET: %v, %v", got, err)
	}
	if got, err := client.CoreV1().Nodes().Get(ctx, "one", metav1.GetOptions{}); err != nil || !reflect.DeepEqual(got, whole()) {
		t.Errorf("GET by the client itself: %v, %v", got, err)
	}

	two := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two", Annotations: map[string]string{"read": "y"}}}
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "c"}, Items: []corev1.Node{*whole(), *two, *whole()}}
	narrow, _ = api(t, protobufType, http.StatusOK, encoded(t, protobufType, list))
	want := &corev1.NodeList{ListMeta: list.ListMeta, Items: []corev1.Node{*narrowed(), {ObjectMeta: metav1.ObjectMeta{Name: "two"}}, *narrowed()}}
	if got, err := narrow.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("list: %v, %v", got, err)
	}

	var events bytes.Buffer
	frames := protobuf.LengthDelimitedFramer.NewFrameWriter(&events)
	raw := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
	event := &metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Raw: encoded(t, protobufType, whole())}}
	if err := raw.Encode(event, frames); err != nil {
		t.Fatal(err)
	}
	narrow, _ = api(t, protobufType+";stream=watch", http.StatusOK, events.Bytes())
	seen, err := narrow.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	if got := <-seen.ResultChan(); got.Type != watch.Modified || !reflect.DeepEqual(got.Object, narrowed()) {
		t.Errorf("watch: %v", got)
	}
}

// What isn't a Node in protobuf is what it is for every client.
func TestReadingOnlyLeavesTheRest(t *testing.T) {
	ctx := t.Context()
	refused := &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "no"}
	for _, c := range []struct {
		name, contentType string
		status            int
		body              []byte
	}{
		{"JSON", "application/json", http.StatusOK, encoded(t, "application/json", whole())},
		{"an error", protobufType, http.StatusForbidden, encoded(t, protobufType, refused)},
		{"half a Node", protobufType, http.StatusOK, encoded(t, protobufType, whole())[:60]},
		{"nothing", protobufType, http.StatusOK, nil},
	} {
		narrow, client := api(t, c.contentType, c.status, c.body)
		want, wantErr := client.CoreV1().Nodes().Get(ctx, "one", metav1.GetOptions{})
		got, err := narrow.CoreV1().Nodes().Get(ctx, "one", metav1.GetOptions{})
		if !reflect.DeepEqual(got, want) || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, err, want, wantErr)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: "one"}}
	narrow, _ := api(t, protobufType, http.StatusOK, encoded(t, protobufType, pod))
	if got, err := narrow.CoreV1().Pods("x").Get(ctx, "p", metav1.GetOptions{}); err != nil || !reflect.DeepEqual(got, pod) {
		t.Errorf("a Pod: %v, %v", got, err)
	}
}
