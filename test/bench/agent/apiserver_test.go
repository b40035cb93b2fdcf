//go:build linux

package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/underlay-ccm/underlay/internal/directory"
)

// generatedNodes is set in the process that is the API server: to its number of Nodes and, after a
// comma, whether it supports watch-lists.
const generatedNodes = "UNDERLAY_BENCH_NODES"

const protobufType = "application/vnd.kubernetes.protobuf"

// nodesAPI is the part of an API server that an agent requests: the directory of generated Nodes,
// the agent's own Node, and its status. Kubelets send heartbeats, of which a watch of the own Node
// contains only its own. It is a process of its own, so that its cost doesn't count as the agent's.
type nodesAPI struct {
	count     int
	watchList bool

	mu       sync.Mutex
	version  int
	own      *corev1.Node
	watchers map[chan *corev1.Node]bool // whether it watches Nodes
}

// serveNodes runs the process: it prints its address, and sends a heartbeat for each line that it
// reads.
func serveNodes(setting string) error {
	count, watchList, _ := strings.Cut(setting, ",")
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	s := &nodesAPI{count: n, watchList: watchList == "true", version: n, watchers: map[chan *corev1.Node]bool{}}
	s.own = full(0)
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	fmt.Println(server.URL)
	lines := bufio.NewScanner(os.Stdin)
	for i := 1; lines.Scan(); i++ {
		s.beat(i % n)
	}
	return lines.Err()
}

// beat is a kubelet's report of an unchanged state.
func (s *nodesAPI) beat(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i > 0 {
		return // this Node has no watcher
	}
	node := s.own.DeepCopy()
	for c := range node.Status.Conditions {
		node.Status.Conditions[c].LastHeartbeatTime = metav1.Now()
	}
	s.publish(node)
}

// publish sends an event to the watchers; s.mu is held.
func (s *nodesAPI) publish(node *corev1.Node) {
	s.version++
	node.ResourceVersion = strconv.Itoa(s.version)
	for w, ofNodes := range s.watchers {
		if ofNodes {
			w <- node
		}
	}
}

func (s *nodesAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && (r.URL.Path == entriesPath || r.URL.Path == "/api/v1/nodes" && ofOwn(r)):
		if r.URL.Query().Get("watch") != "" {
			s.watch(w, r)
			return
		}
		s.list(w, r)
	case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/"+own+"/status":
		s.patch(w, r)
	case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/default/events"):
		answer(w, http.StatusCreated, &corev1.Event{})
	default:
		http.Error(w, r.Method+" "+r.URL.Path+" is not part of this benchmark", http.StatusForbidden)
	}
}

const entriesPath = "/api/v1/namespaces/" + directory.Namespace + "/configmaps"

// ofOwn reports whether a request is for the agent's own Node only.
func ofOwn(r *http.Request) bool { return r.URL.Query().Get("fieldSelector") == "metadata.name="+own }

// objects are the results of a list.
func (s *nodesAPI) objects(r *http.Request) (all []runtime.Object) {
	if r.URL.Path != entriesPath {
		s.mu.Lock()
		defer s.mu.Unlock()
		return []runtime.Object{s.own}
	}
	for i := range s.count {
		entry, err := directory.Object(full(i))
		if err != nil {
			panic(err) // an invalid Node
		}
		entry.UID, entry.ResourceVersion = types.UID(fmt.Sprintf("%08d-0000-4000-9000-%012d", i, i)), strconv.Itoa(i+1)
		entry.CreationTimestamp = metav1.Unix(1_700_000_000+int64(i), 0)
		entry.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "underlay-ccm", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			Time:     &entry.CreationTimestamp,
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{".":{},"f:node":{}},"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"` + string(entry.UID) + `\"}":{}}}}`),
		}}
		all = append(all, entry)
	}
	return append(all, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: directory.Complete, Namespace: directory.Namespace, ResourceVersion: strconv.Itoa(s.count),
	}})
}

func (s *nodesAPI) list(w http.ResponseWriter, r *http.Request) {
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(s.count)}
	all := s.objects(r)
	if r.URL.Path != entriesPath {
		answer(w, http.StatusOK, &corev1.NodeList{
			ListMeta: meta, Items: []corev1.Node{*all[0].(*corev1.Node)},
		})
		return
	}
	list := &corev1.ConfigMapList{ListMeta: meta}
	for _, o := range all {
		list.Items = append(list.Items, *o.(*corev1.ConfigMap))
	}
	answer(w, http.StatusOK, list)
}

func (s *nodesAPI) watch(w http.ResponseWriter, r *http.Request) {
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	if initial && !s.watchList {
		invalid := &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity, Message: "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}
		answer(w, http.StatusUnprocessableEntity, invalid)
		return
	}
	changed := make(chan *corev1.Node, 1000)
	s.mu.Lock()
	s.watchers[changed] = r.URL.Path != entriesPath
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, changed)
	}()
	send := events(w)
	if initial {
		for _, o := range s.objects(r) {
			send("ADDED", o)
		}
		end := metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(s.count), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}
		if r.URL.Path == entriesPath {
			send("BOOKMARK", &corev1.ConfigMap{ObjectMeta: end})
		} else {
			send("BOOKMARK", &corev1.Node{ObjectMeta: end})
		}
	}
	for {
		w.(http.Flusher).Flush()
		select {
		case node := <-changed:
			send("MODIFIED", node)
		case <-r.Context().Done():
			return
		}
	}
}

// events begins a stream of events, and returns the function that sends them.
func events(w http.ResponseWriter) func(kind string, obj runtime.Object) {
	w.Header().Set("Content-Type", protobufType+";stream=watch")
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), protobufType)
	frames := info.StreamSerializer.NewFrameWriter(w)
	return func(kind string, obj runtime.Object) {
		event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: encoded(obj)}}
		_ = info.StreamSerializer.Encode(event, frames) // the context ends with the connection
	}
}

func (s *nodesAPI) patch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	patch, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	before, err := json.Marshal(s.own)
	if err == nil {
		before, err = strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	}
	after := &corev1.Node{}
	if err == nil {
		err = json.Unmarshal(before, after)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.own = after
	s.publish(after)
	answer(w, http.StatusOK, after)
}

func answer(w http.ResponseWriter, code int, obj runtime.Object) {
	w.Header().Set("Content-Type", protobufType)
	w.WriteHeader(code)
	_, _ = w.Write(encoded(obj))
}

func encoded(obj runtime.Object) []byte {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), protobufType)
	raw, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer,
		corev1.SchemeGroupVersion), obj)
	if err != nil {
		panic(err) // an invalid Node
	}
	return raw
}

// remoteNodes is an API server in a process of its own.
type remoteNodes struct {
	kubeconfig string
	beats      io.Writer
}

func startNodes(b *testing.B, count int, watchList bool) *remoteNodes {
	b.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d,%t", generatedNodes, count, watchList))
	cmd.Stderr = os.Stderr
	beats, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = beats.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	url, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	write(b, kubeconfig, 0o600, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: bench,
  contexts: [{name: bench, context: {cluster: bench, user: bench}}], users: [{name: bench, user: {}}],
  clusters: [{name: bench, cluster: {server: "%s", insecure-skip-tls-verify: true}}]}
`, strings.TrimSpace(url)))
	return &remoteNodes{kubeconfig: kubeconfig, beats: beats}
}

// heartbeats sends the reports of as many kubelets, one every five minutes each (kubelet,
// nodeStatusReportFrequency), until the time is over. It returns their number.
func (r *remoteNodes) heartbeats(b *testing.B, nodes int, during time.Duration) (sent int) {
	b.Helper()
	every := time.NewTicker(5 * time.Minute / time.Duration(nodes))
	defer every.Stop()
	over := time.After(during)
	for {
		select {
		case <-over:
			return sent
		case <-every.C:
			if _, err := io.WriteString(r.beats, "\n"); err != nil {
				b.Fatal(err)
			}
			sent++
		}
	}
}

// full is a Node with all fields that a kubelet and others set, some 14 kB.
func full(i int) *corev1.Node {
	n := node(i)
	n.CreationTimestamp = metav1.Unix(1_700_000_000+int64(i), 0)
	n.Labels, n.Annotations = map[string]string{}, map[string]string{}
	for l := range 20 {
		n.Labels[fmt.Sprintf("example.com/label-%d", l)] = n.Name
		n.Annotations[fmt.Sprintf("example.com/annotation-%d", l)] = strings.Repeat(n.Name+" ", 4)
	}
	for image := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			SizeBytes: 1 << 20,
			Names: []string{
				fmt.Sprintf("registry.example/project/image-%d@sha256:%064d", image, i), fmt.Sprintf("registry.example/project/image-%d:v1.%d", image, i),
			},
		})
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady, corev1.NodeNetworkUnavailable, "underlay.dev/PeersReachable"} {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "Benchmark", Message: "as a kubelet says it", LastHeartbeatTime: n.CreationTimestamp}
		if kind == corev1.NodeReady || kind == "underlay.dev/PeersReachable" {
			c.Status = corev1.ConditionTrue
		}
		n.Status.Conditions = append(n.Status.Conditions, c)
	}
	for _, manager := range []string{"kubelet", "kube-controller-manager", "underlay-ccm"} {
		n.ManagedFields = append(n.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", Time: &n.CreationTimestamp,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{}` + strings.Repeat(`,"f:example.com/annotation":{}`, 40) + `}}}`),
		})
	}
	n.UID = types.UID(fmt.Sprintf("%08d-0000-4000-8000-%012d", i, i))
	return n
}
