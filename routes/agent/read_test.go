package agent_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/randfill"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// Of the fields that are read the agent keeps of any Node what it keeps of the whole.
func TestReadHasWhatTrimKeeps(t *testing.T) {
	const contentType = "application/vnd.kubernetes.protobuf"
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	to := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: contentType}}
	client, err := kubernetes.NewForConfig(to)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := kube.ReadingOnly(agent.Read("self"), client, to)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	types := []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeNetworkUnavailable, agent.PeersReachable, corev1.NodeDiskPressure}
	addresses := []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName}
	fill := randfill.NewWithSeed(random.Int64()).NilChance(0.2).NumElements(1, 4).Funcs(
		func(c *corev1.NodeConditionType, _ randfill.Continue) { *c = types[random.IntN(len(types))] },
		func(a *corev1.NodeAddressType, _ randfill.Continue) { *a = addresses[random.IntN(len(addresses))] },
		func(m *metav1.TypeMeta, _ randfill.Continue) { *m = metav1.TypeMeta{} },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString("{}") },
	)
	for range 200 {
		whole := &corev1.Node{}
		fill.Fill(whole)
		if random.IntN(2) == 0 {
			metav1.SetMetaDataLabel(&whole.ObjectMeta, "node-role.kubernetes.io/control-plane", "")
		}
		if random.IntN(2) == 0 {
			whole.Name = "self"
		}
		for _, key := range []string{metav1.InitialEventsAnnotationKey, podingress.Annotation("a"), podingress.Annotation("b")} {
			if random.IntN(2) == 0 {
				metav1.SetMetaDataAnnotation(&whole.ObjectMeta, key, "x")
			}
		}
		if body, err = runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), whole); err != nil {
			t.Fatal(err)
		}
		all, err := client.CoreV1().Nodes().Get(t.Context(), "any", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		read, err := reader.CoreV1().Nodes().Get(t.Context(), "any", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want := annotations(whole); !reflect.DeepEqual(read.Annotations, want) {
			t.Fatalf("annotations of %s: %v, want %v", whole.Name, read.Annotations, want)
		}
		want, _ := agent.Trim("self")(all)
		got, _ := agent.Trim("self")(read)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("of the fields that are read: %+v\nof all: %+v", got, want)
		}
	}
}

// annotations are those of a Node that are read: that the first listing ends, and of the
// machine's own Node those about targets.
func annotations(node *corev1.Node) map[string]string {
	var read map[string]string
	for key, value := range node.Annotations {
		if _, targets := podingress.Service(key); key == metav1.InitialEventsAnnotationKey || targets && node.Name == "self" {
			if read == nil {
				read = map[string]string{}
			}
			read[key] = value
		}
	}
	return read
}
