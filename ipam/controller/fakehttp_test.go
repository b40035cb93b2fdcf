package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// RoundTrip answers one request.
func (f *fakeAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	if watching, _ := strconv.ParseBool(req.URL.Query().Get("watch")); watching {
		return f.watch(req)
	}
	var what fault
	f.mu.Lock()
	if f.faults != nil {
		what = f.faults(req.Method)
	}
	f.mu.Unlock()
	if !elapse(req.Context(), what.delay) {
		// It is on its way already.
		what.lose = true
	}
	switch {
	case what.refuse:
		return reply(nil, apierrors.NewServiceUnavailable("fake: refused"))
	case what.answer != nil:
		return reply(nil, what.answer)
	case what.page:
		page := response(http.StatusNotFound, io.NopCloser(strings.NewReader("<h1>404 Not Found</h1>")))
		page.Header.Set("Content-Type", "text/html")
		return page, nil
	}
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if what.late > 0 {
		f.deliverLater(req, body, what)
		return nil, errConnection
	}
	answer, err := f.handle(req, body, what)
	if what.lose {
		return nil, errConnection
	}
	return reply(answer, err)
}

// elapse waits, or returns false when the context ends first. It makes no timer for no time:
// when several goroutines find such a timer expired, Go's race detector crashes in a bubble.
func elapse(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

// deliverLater applies a request whose sender has been told that the connection broke.
func (f *fakeAPI) deliverLater(req *http.Request, body []byte, what fault) {
	done := false
	apply := func() {
		if !done {
			done = true
			_, _ = f.handle(req, body, what)
		}
	}
	f.late = append(f.late, apply)
	time.AfterFunc(what.late, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		apply()
	})
}

func (f *fakeAPI) handle(req *http.Request, body []byte, what fault) (any, error) {
	name, single := strings.CutPrefix(req.URL.Path, "/api/v1/nodes/")
	switch {
	case req.Method == http.MethodGet && single:
		if node, ok := f.nodes[name]; ok {
			return node, nil
		}
		return nil, apierrors.NewNotFound(nodeResource, name)
	case req.Method == http.MethodGet && req.URL.Path == "/api/v1/nodes":
		at := len(f.history)
		if req.URL.Query().Get("resourceVersion") != "" && f.stalled != nil {
			at = f.horizon
		}
		list := &corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}}
		list.ResourceVersion = strconv.Itoa(at)
		for _, node := range f.at(at) {
			list.Items = append(list.Items, *node)
		}
		return list, nil
	case req.Method == http.MethodPatch && single:
		return f.patch(name, body, what)
	}
	panic(fmt.Sprintf("fake: the controller must not send %s %s", req.Method, req.URL.Path))
}

// at returns the Nodes as they were at a resource version, by name.
func (f *fakeAPI) at(rv int) []*corev1.Node {
	then := map[string]*corev1.Node{}
	for _, v := range f.history[:rv] {
		if v.kind == watch.Deleted {
			delete(then, v.node.Name)
		} else {
			then[v.node.Name] = v.node
		}
	}
	var nodes []*corev1.Node
	for _, name := range slices.Sorted(maps.Keys(then)) {
		nodes = append(nodes, then[name])
	}
	return nodes
}

// patch does what the API server does with the podCIDRs of a Node.
func (f *fakeAPI) patch(name string, body []byte, what fault) (any, error) {
	f.patches[name]++
	var patch struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
		Spec struct {
			PodCIDR  string   `json:"podCIDR"`
			PodCIDRs []string `json:"podCIDRs"`
		} `json:"spec"`
	}
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&patch); err != nil || patch.Metadata.UID == "" {
		panic(fmt.Sprintf("fake: the controller must not send this patch: %s", body))
	}
	old, ok := f.nodes[name]
	if !ok {
		return nil, apierrors.NewNotFound(nodeResource, name)
	}
	if old.UID != patch.Metadata.UID {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, name, nil)
	}
	if patch.Spec.PodCIDR != patch.Spec.PodCIDRs[0] || what.cutDown {
		patch.Spec.PodCIDRs = []string{patch.Spec.PodCIDR}
	}
	if len(old.Spec.PodCIDRs) > 0 {
		if !slices.Equal(old.Spec.PodCIDRs, patch.Spec.PodCIDRs) {
			return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, name, nil)
		}
		return old, nil
	}
	node := old.DeepCopy()
	node.Spec.PodCIDR, node.Spec.PodCIDRs = patch.Spec.PodCIDR, patch.Spec.PodCIDRs
	f.writes[node.UID]++
	f.byUs[node.UID] = true
	f.put(watch.Modified, node)
	return node, nil
}

// reply encodes an answer or an error as the API server would.
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
	if node, ok := answer.(*corev1.Node); ok {
		node = node.DeepCopy()
		node.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
		answer = node
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
