package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const auditLog = "audit.log"

// auditPolicy records every write once, when it was answered, without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// AuditEvent is one write that the API server answered, granted or refused.
type AuditEvent struct {
	Time        time.Time // when it was answered
	User        string    // such as system:serviceaccount:kube-system:underlay-ccm
	UserAgent   string
	Verb        string // create, update, patch, delete or deletecollection
	Group       string // API group; "" is the core group
	Resource    string // plural, such as nodes
	Subresource string // such as status
	Namespace   string
	Name        string // empty where the server chose it
	Code        int    // HTTP status
}

// String is one line: who, what, on what, with which result.
func (e AuditEvent) String() string {
	what := e.Resource
	if e.Group != "" {
		what += "." + e.Group
	}
	if e.Subresource != "" {
		what += "/" + e.Subresource
	}
	name := strings.TrimPrefix(e.Namespace+"/"+e.Name, "/")
	return fmt.Sprintf("%s %s %s %s %d", e.User, e.Verb, what, name, e.Code)
}

// Audit returns every write so far, in the order of the log. The server logs
// right after it answers: the latest may still be missing for a moment, so wait
// for a write that you expect, and let some time pass before you rely on the
// absence of one.
func (c *ControlPlane) Audit() ([]AuditEvent, error) {
	content, err := os.ReadFile(filepath.Join(c.dir, auditLog))
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return parseAudit(content)
}

// parseAudit reads one JSON object per line. A last line without an end is
// still being written, and left out.
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

// auditRecord is the part of an audit.k8s.io/v1 Event that is of use here.
type auditRecord struct {
	Verb           string    `json:"verb"`
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
}

func (r auditRecord) event() AuditEvent {
	return AuditEvent{
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
	}
}
