package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
)

// object is what the API server stores.
type object interface {
	metav1.Object
	runtime.Object
}

// apiServer is an API server for Nodes and ConfigMaps, as an http.RoundTripper. It keeps every
// version of every object, so that watches and cached lists can lag behind as real ones do: late,
// but in order and complete. What it knows of the rules of the API: resource versions, UIDs as
// preconditions of patches, podCIDRs that never change once they are set, status apart from spec.
type apiServer struct {
	mu      sync.Mutex
	uids    int
	nodes   *collection
	maps    *collection
	stalled chan struct{} // while not nil: watches and cached lists stay where they are
	lag     func() time.Duration
	// changed is told of every change of a Node, under the lock: nil before it is created and
	// after it is gone, and whether the request came from a manager.
	changed func(before, after *corev1.Node, managed bool)
}

// collection is every version of all objects of a kind.
type collection struct {
	apiVersion, kind, resource string
	make                       func() object
	objects                    map[string]object
	history                    []version     // index = resource version - 1
	wake                       chan struct{} // closed with the next change
	horizon                    int           // the resource version of watches while they are stalled
}

type version struct {
	kind   watch.EventType
	object object
}

func newAPIServer(changed func(before, after *corev1.Node, managed bool)) *apiServer {
	collected := func(kind, resource string, make func() object) *collection {
		return &collection{
			apiVersion: "v1", kind: kind, resource: resource, make: make,
			objects: map[string]object{}, history: []version{{}}, wake: newSignal(),
		}
	}
	return &apiServer{
		nodes:   collected("Node", "nodes", func() object { return &corev1.Node{} }),
		maps:    collected("ConfigMap", "configmaps", func() object { return &corev1.ConfigMap{} }),
		changed: changed,
	}
}

func newSignal() chan struct{} { return make(chan struct{}) }

func (c *collection) group() schema.GroupResource { return schema.GroupResource{Resource: c.resource} }

// put stores a new version. The caller holds the lock.
func (a *apiServer) put(c *collection, kind watch.EventType, o object, managed bool) {
	before := c.objects[o.GetName()]
	o.SetResourceVersion(strconv.Itoa(len(c.history) + 1))
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(c.apiVersion, c.kind))
	c.history = append(c.history, version{kind, o})
	after := o
	if kind == watch.Deleted {
		delete(c.objects, o.GetName())
		after = nil
	} else {
		c.objects[o.GetName()] = o
	}
	if c == a.nodes {
		was, _ := before.(*corev1.Node)
		is, _ := after.(*corev1.Node)
		a.changed(was, is, managed)
	}
	close(c.wake)
	c.wake = newSignal()
}

// at returns the objects as they were at a resource version, by name.
func (c *collection) at(rv int) []object {
	then := map[string]object{}
	for _, v := range c.history[1:rv] {
		if v.kind == watch.Deleted {
			delete(then, v.object.GetName())
		} else {
			then[v.object.GetName()] = v.object
		}
	}
	all := make([]object, 0, len(then))
	for _, name := range slices.Sorted(maps.Keys(then)) {
		all = append(all, then[name])
	}
	return all
}

// handle answers a request of a manager that is no watch.
func (a *apiServer) handle(req *http.Request, body []byte) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, name, sub := a.find(req.URL.Path)
	switch {
	case c == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, req.URL.Path)
	case req.Method == http.MethodGet && name == "":
		return a.list(req, c), nil
	case req.Method == http.MethodPost:
		return a.create(c, body)
	}
	old, ok := c.objects[name]
	if !ok {
		return nil, apierrors.NewNotFound(c.group(), name)
	}
	switch req.Method {
	case http.MethodGet:
		return old, nil
	case http.MethodPut:
		return a.update(c, old, body)
	case http.MethodPatch:
		return a.patch(c, old, sub, req.Header.Get("Content-Type"), body)
	}
	return nil, apierrors.NewMethodNotSupported(c.group(), req.Method)
}

// find reads a path: the collection, the object's name and the subresource.
func (a *apiServer) find(path string) (c *collection, name, sub string) {
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	switch parts[0] {
	case a.nodes.resource:
		c = a.nodes
	case a.maps.resource:
		c = a.maps
	}
	parts = append(parts, "", "")
	return c, parts[1], parts[2]
}

func (a *apiServer) list(req *http.Request, c *collection) any {
	at := len(c.history)
	if req.URL.Query().Get("resourceVersion") != "" && a.stalled != nil {
		at = c.horizon
	}
	return map[string]any{
		"kind": c.kind + "List", "apiVersion": c.apiVersion,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(at)}, "items": c.at(at),
	}
}

func (a *apiServer) create(c *collection, body []byte) (any, error) {
	o := c.make()
	if err := json.Unmarshal(body, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if _, exists := c.objects[o.GetName()]; exists {
		return nil, apierrors.NewAlreadyExists(c.group(), o.GetName())
	}
	a.meet(o)
	a.put(c, watch.Added, o, true)
	return o, nil
}

// meet gives a new object what the API server gives it.
func (a *apiServer) meet(o object) {
	a.uids++
	o.SetUID(types.UID(fmt.Sprint("uid-", a.uids)))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
}

func (a *apiServer) update(c *collection, old object, body []byte) (any, error) {
	o := c.make()
	if err := json.Unmarshal(body, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(c.group(), o.GetName(), fmt.Errorf("at version %s, not %s", old.GetResourceVersion(), v))
	}
	if u := o.GetUID(); u != "" && u != old.GetUID() {
		return nil, apierrors.NewConflict(c.group(), o.GetName(), fmt.Errorf("has UID %s, not %s", old.GetUID(), u))
	}
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	a.put(c, watch.Modified, o, true)
	return o, nil
}

func (a *apiServer) patch(c *collection, old object, sub, kind string, body []byte) (any, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	var after []byte
	if strings.HasPrefix(kind, string(types.StrategicMergePatchType)) {
		after, err = strategicpatch.StrategicMergePatch(before, body, c.make())
	} else {
		after, err = mergePatch(before, body)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o := c.make()
	if err := json.Unmarshal(after, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if o.GetUID() != old.GetUID() {
		return nil, apierrors.NewConflict(c.group(), old.GetName(), fmt.Errorf("has UID %s, not %s", old.GetUID(), o.GetUID()))
	}
	if node, ok := o.(*corev1.Node); ok {
		if err := strategy(old.(*corev1.Node), node, sub); err != nil {
			return nil, err
		}
	}
	if same, _ := json.Marshal(o); bytes.Equal(same, before) {
		return old, nil
	}
	a.put(c, watch.Modified, o, true)
	return o, nil
}

// mergePatch applies a patch as RFC 7386 says.
func mergePatch(before, patch []byte) ([]byte, error) {
	var target, changes map[string]any
	if err := errors.Join(json.Unmarshal(before, &target), json.Unmarshal(patch, &changes)); err != nil {
		return nil, err
	}
	merge(target, changes)
	return json.Marshal(target)
}

func merge(target, changes map[string]any) {
	for key, value := range changes {
		inner, isObject := value.(map[string]any)
		into, hasObject := target[key].(map[string]any)
		switch {
		case value == nil:
			delete(target, key)
		case isObject && hasObject:
			merge(into, inner)
		default:
			target[key] = value
		}
	}
}

// strategy is what the API server does to a changed Node: what the subresource is not about stays,
// podCIDRs never change, and are cut down to podCIDR where that isn't their first.
func strategy(old, node *corev1.Node, sub string) error {
	if sub == "status" {
		node.Spec = *old.Spec.DeepCopy()
		return nil
	}
	node.Status = *old.Status.DeepCopy()
	if len(node.Spec.PodCIDRs) > 0 && node.Spec.PodCIDR != node.Spec.PodCIDRs[0] {
		node.Spec.PodCIDRs = []string{node.Spec.PodCIDR}
	}
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs) {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, node.Name, nil)
	}
	return nil
}

// reply encodes an answer or an error as an API server does.
func reply(answer any, err error) (*http.Response, error) {
	code := http.StatusOK
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			return nil, err
		}
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		code, answer = int(s.Code), s
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return response(code, io.NopCloser(bytes.NewReader(body))), nil
}

func response(code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: body,
	}
}
