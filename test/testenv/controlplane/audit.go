package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const auditLog = "audit.log"

// auditPolicy records every write once, after its response, without bodies. Of the accounts of
// deploy/ it records reads as well, and a watch when it begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users:
  - system:serviceaccount:kube-system:underlay-ccm
  - system:serviceaccount:kube-system:underlay-agent
  - system:serviceaccount:kube-system:underlay-reader
  - system:serviceaccount:kube-system:underlay-connectivity
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
  omitStages: [ResponseStarted]
- level: None
`

// AuditEvent is one request with its response, allowed or not.
type AuditEvent struct {
	Time        time.Time `json:",omitzero"` // time of the response
	User        string    // such as system:serviceaccount:kube-system:underlay-ccm
	UserAgent   string
	Verb        string // such as create or watch
	Group       string `json:",omitempty"` // API group; "" is the core group
	Resource    string `json:",omitempty"` // plural, such as nodes; "" for a path
	Subresource string `json:",omitempty"` // such as status
	Namespace   string `json:",omitempty"`
	Name        string `json:",omitempty"` // empty where the server chose it
	Path        string `json:",omitempty"` // such as /healthz, where Resource is empty
	Code        int    // HTTP status
	Forbidden   bool   `json:",omitempty"` // no role grants it; rejections by admission don't count
}

// isWrite reports whether the request was meant to change something.
func (e AuditEvent) isWrite() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb)
}

// String is one line: user, verb, object, result.
func (e AuditEvent) String() string {
	what := e.Resource
	if e.Group != "" {
		what += "." + e.Group
	}
	if e.Subresource != "" {
		what += "/" + e.Subresource
	}
	name := strings.TrimPrefix(e.Namespace+"/"+e.Name, "/") + e.Path
	line := fmt.Sprintf("%s %s %s %s %d", e.User, e.Verb, what, name, e.Code)
	if e.Forbidden {
		line += ", which no role grants"
	}
	return line
}

// Audit returns all writes so far, in the order of the log. The server logs right after its
// response, so the latest may be missing for a moment: wait for a write that you expect, and let
// some time pass before you rely on the absence of one.
func (c *ControlPlane) Audit() ([]AuditEvent, error) {
	events, err := c.requests()
	return slices.DeleteFunc(events, func(e AuditEvent) bool { return !e.isWrite() }), err
}

// requests are all requests that the policy records.
func (c *ControlPlane) requests() ([]AuditEvent, error) {
	content, err := os.ReadFile(filepath.Join(c.dir, auditLog))
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return parseAudit(content)
}

// parseAudit parses one JSON object per line. It leaves out a last line without an end, which is
// still being written.
func parseAudit(content []byte) ([]AuditEvent, error) {
	var events []AuditEvent
	for {
		line, rest, whole := bytes.Cut(content, []byte("\n"))
		if !whole {
			return events, nil
		}
		content = rest
		var raw auditRecord
		if err := json.Unmarshal(line, &raw); err != nil {
			return nil, fmt.Errorf("parse the audit log after %d events: %w", len(events), err)
		}
		events = append(events, raw.event())
	}
}

// auditRecord is the needed part of an audit.k8s.io/v1 Event.
type auditRecord struct {
	Verb           string    `json:"verb"`
	RequestURI     string    `json:"requestURI"`
	UserAgent      string    `json:"userAgent"`
	StageTimestamp time.Time `json:"stageTimestamp"`
	User           struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// Annotations hold the authorizer's decision.
	Annotations map[string]string `json:"annotations"`
}

func (r auditRecord) event() AuditEvent {
	e := AuditEvent{
		Time:        r.StageTimestamp,
		User:        r.User.Username,
		UserAgent:   r.UserAgent,
		Verb:        r.Verb,
		Group:       r.ObjectRef.APIGroup,
		Resource:    r.ObjectRef.Resource,
		Subresource: r.ObjectRef.Subresource,
		Namespace:   r.ObjectRef.Namespace,
		Name:        r.ObjectRef.Name,
		Code:        r.ResponseStatus.Code,
		Forbidden:   r.Annotations["authorization.k8s.io/decision"] == "forbid",
	}
	if e.Resource == "" {
		e.Path, _, _ = strings.Cut(r.RequestURI, "?")
	}
	return e
}
