package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

// apiServer is an API server for Nodes and ConfigMaps, as an http.RoundTripper. It implements these
// rules of the API: resource versions, UIDs as preconditions of patches, podCIDRs that never change
// once they are set, status apart from spec.
type apiServer struct {
	fakeapi.History
	uids  int
	nodes *collection
	maps  *collection
	// changed is called with every change of a Node, under the lock: nil before it is created and
	// after it is deleted, and whether the request was a manager's.
	changed func(before, after *corev1.Node, managed bool)
}

// collection is a kind of objects, with its name in requests.
type collection struct {
	*fakeapi.Collection
	resource string
	make     func() fakeapi.Object
}

func newAPIServer(changed func(before, after *corev1.Node, managed bool)) *apiServer {
	a := &apiServer{changed: changed}
	a.nodes = &collection{a.Collection("v1", "Node"), "nodes", func() fakeapi.Object { return &corev1.Node{} }}
	a.maps = &collection{a.Collection("v1", "ConfigMap"), "configmaps", func() fakeapi.Object { return &corev1.ConfigMap{} }}
	return a
}

func (c *collection) group() schema.GroupResource {
	return schema.GroupResource{
		Resource: c.resource,
	}
}

// put stores a new version. The caller holds the lock.
func (a *apiServer) put(c *collection, kind watch.EventType, o fakeapi.Object, managed bool) {
	was, _ := c.Objects[o.GetName()].(*corev1.Node)
	c.Put(kind, o)
	if c == a.nodes {
		is, _ := c.Objects[o.GetName()].(*corev1.Node)
		a.changed(was, is, managed)
	}
}

// handle serves a request of a manager other than a watch.
func (a *apiServer) handle(req *http.Request, body []byte) (any, error) {
	a.Lock()
	defer a.Unlock()
	c, name, sub := a.find(req.URL.Path)
	switch {
	case c == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, req.URL.Path)
	case req.Method == http.MethodGet && name == "":
		return a.List(req, c.Collection), nil
	case req.Method == http.MethodPost:
		return a.create(c, body)
	}
	old, ok := c.Objects[name]
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

// find parses a path: the collection, the object's name and the subresource.
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

func (a *apiServer) create(c *collection, body []byte) (any, error) {
	o := c.make()
	if err := json.Unmarshal(body, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if _, exists := c.Objects[o.GetName()]; exists {
		return nil, apierrors.NewAlreadyExists(c.group(), o.GetName())
	}
	a.meet(o)
	a.put(c, watch.Added, o, true)
	return o, nil
}

// meet sets the fields that the API server sets in a new object.
func (a *apiServer) meet(o fakeapi.Object) {
	a.uids++
	o.SetUID(types.UID(fmt.Sprint("uid-", a.uids)))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
}

func (a *apiServer) update(c *collection, old fakeapi.Object, body []byte) (any, error) {
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

func (a *apiServer) patch(
	c *collection, old fakeapi.Object, sub, kind string, body []byte,
) (any, error) {
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

// mergePatch applies a patch by RFC 7386.
func mergePatch(before, patch []byte) ([]byte, error) {
	var target, changes map[string]any
	if err := errors.Join(json.Unmarshal(before, &target), json.Unmarshal(patch,
		&changes)); err != nil {
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

// strategy acts as the API server's strategy for a changed Node: fields outside of the subresource
// are kept, podCIDRs never change, and are cut down to podCIDR if that isn't their first.
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
