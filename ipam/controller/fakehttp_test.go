package controller

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

type call struct {
	kind string // its verb and resource: "PATCH nodes", "GET configmaps", "LIST nodes"
	name string // of the object, if it is about one
	body string // of the request
}

// fault is the failure of one request.
type fault struct {
	delay   time.Duration // before everything else
	refuse  bool          // nothing is applied, the reply is 503
	lose    bool          // applied, but the connection breaks
	drop    bool          // not applied, and the connection breaks
	late    time.Duration // the connection breaks, and it is applied later by this time
	slow    time.Duration // applied, and the reply is delayed
	reply   error         // nothing is applied, this is the reply
	page    bool          // not applied, a proxy replies with 404 and a page of its own
	cutDown bool          // podCIDRs is cut down to its first entry, as if podCIDR had differed
}

var errConnection = errors.New("fake: connection lost")

var nodeResource = schema.GroupResource{Resource: "nodes"}

const (
	nodesPath    = "/api/v1/nodes"
	ledgersPath  = "/api/v1/namespaces/" + ledgerNamespace + "/configmaps"
	servicesPath = "/apis/networking.k8s.io/v1/servicecidrs"
	policiesPath = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	bindingsPath = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
)

// identify returns the kind, name and body of a request.
func identify(req *http.Request, body []byte) call {
	path, parts := req.URL.Path, []string{}
	for _, collection := range []string{
		nodesPath, ledgersPath, servicesPath, policiesPath, bindingsPath,
	} {
		if rest, ok := strings.CutPrefix(path, collection); ok && (rest == "" || rest[0] == '/') {
			path, parts = collection[strings.LastIndex(collection, "/")+1:], strings.Split(rest, "/")
			break
		}
	}
	c := call{kind: req.Method + " " + path, body: string(body)}
	if len(parts) > 1 {
		c.name = parts[1]
	}
	if len(parts) > 2 {
		c.kind += "/" + parts[2]
	}
	if req.Method == http.MethodGet && c.name == "" {
		c.kind = "LIST " + path
		if watching, _ := strconv.ParseBool(req.URL.Query().Get("watch")); watching {
			c.kind = "WATCH " + path
		}
	}
	return c
}

func (f *fakeAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := fakeapi.ReadBody(req)
	if err != nil {
		return nil, err
	}
	c := identify(req, body)
	switch c.kind {
	case "WATCH nodes":
		return f.Watch(req, f.nodes), nil
	case "WATCH servicecidrs":
		return f.Watch(req, f.services), nil
	}
	what := f.arrive(c)
	if !fakeapi.Elapse(req.Context().Done(), what.delay) {
		// It is already in flight.
		what.lose = true
	}
	switch {
	case what.refuse:
		return fakeapi.Reply(nil, apierrors.NewServiceUnavailable("fake: refused"))
	case what.reply != nil:
		return fakeapi.Reply(nil, what.reply)
	case what.drop:
		return nil, errConnection
	case what.page:
		page := fakeapi.Response(http.StatusNotFound, io.NopCloser(strings.NewReader("<h1>404 Not Found</h1>")))
		page.Header.Set("Content-Type", "text/html")
		return page, nil
	}
	reply, err := f.apply(req, c, what)
	if what.late > 0 || what.lose || !fakeapi.Elapse(req.Context().Done(), what.slow) {
		return nil, errConnection
	}
	return fakeapi.Reply(reply, err)
}

// apply executes a request, now or later. The returned object is never modified afterwards.
func (f *fakeAPI) apply(req *http.Request, c call, what fault) (any, error) {
	f.Lock()
	defer f.Unlock()
	if what.late > 0 {
		f.deliverLater(req, c, what)
		return nil, nil
	}
	return f.handle(req, c, what)
}

// arrive counts a request and draws its fault.
func (f *fakeAPI) arrive(c call) (what fault) {
	f.Lock()
	defer f.Unlock()
	f.calls[c.kind]++
	if strings.HasPrefix(c.kind, "P") {
		f.order = append(f.order, strings.TrimSpace(c.kind+" "+c.name))
	}
	if f.faults != nil {
		what = f.faults(c)
	}
	if *logCalls {
		f.note("%s %s %+v", c.kind, c.name, what)
	}
	return what
}

// deliverLater applies a request after its client got a connection error.
func (f *fakeAPI) deliverLater(req *http.Request, c call, what fault) {
	done := false
	apply := func() {
		if !done {
			done = true
			f.note("a late %s arrives", c.kind)
			_, _ = f.handle(req, c, what)
		}
	}
	f.late = append(f.late, apply)
	time.AfterFunc(what.late, func() {
		f.Lock()
		defer f.Unlock()
		apply()
	})
}

// handle executes a request. The caller holds the lock.
func (f *fakeAPI) handle(req *http.Request, c call, what fault) (any, error) {
	switch c.kind {
	case "GET nodes":
		if node := f.node(c.name); node != nil {
			return node, nil
		}
		return nil, apierrors.NewNotFound(nodeResource, c.name)
	case "LIST nodes":
		return f.List(req, f.nodes), nil
	case "LIST servicecidrs":
		return f.List(req, f.services), nil
	case "PATCH nodes":
		return f.patchPodCIDRs(req, c, what)
	case "PATCH nodes/status":
		return f.patchStatus(c)
	case "GET configmaps", "PUT configmaps", "POST configmaps":
		if isLedgerName(c.name) || c.name == "" && req.Method == http.MethodPost {
			return f.handleLedger(req, c.name, []byte(c.body))
		}
	case "GET validatingadmissionpolicies":
		return f.admission(&admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: c.name},
		}, c)
	case "GET validatingadmissionpolicybindings":
		return f.admission(&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: c.name},
		}, c)
	}
	panic(fmt.Sprintf("fake: the controller must not send %s %s", req.Method, req.URL))
}

// admission returns the policy or its binding, or a 404.
func (f *fakeAPI) admission(there any, c call) (any, error) {
	if !f.policy {
		resource := schema.GroupResource{
			Group: admissionv1.GroupName, Resource: strings.Fields(c.kind)[1],
		}
		return nil, apierrors.NewNotFound(resource, c.name)
	}
	if binding, ok := there.(*admissionv1.ValidatingAdmissionPolicyBinding); ok {
		binding.Spec.PolicyName = binding.Name
		binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	}
	return there, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
