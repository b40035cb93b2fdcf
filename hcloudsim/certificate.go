package hcloudsim

import (
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindCertificate = "certificate"

const (
	certificateUploaded = "uploaded"
	certificateManaged  = "managed"

	issuancePending   = "pending"
	issuanceCompleted = "completed"
	issuanceFailed    = "failed"

	renewalScheduled   = "scheduled"
	renewalUnavailable = "unavailable"
)

// certificate is either uploaded with content, or managed, with content that an action obtains.
type certificate struct {
	base
	kind     string
	domains  []string // as requested, or parsed from the content
	content  *content // nil: not issued
	issuance string   // issuance status of a managed certificate
	failure  *schema.ActionError
}

type content struct {
	chain               string
	notBefore, notAfter time.Time
	fingerprint         string
	// key is in PEM format; empty after a snapshot was restored, since the API never shows keys.
	key string
}

func (k *certificate) ref() ref { return ref{kindCertificate, k.id} }

// certificateBody is the schema's type with fields that are null until the certificate is issued.
type certificateBody struct {
	schema.Certificate
	PEM            *string            `json:"certificate"`
	NotValidBefore *time.Time         `json:"not_valid_before"`
	NotValidAfter  *time.Time         `json:"not_valid_after"`
	Fingerprint    *string            `json:"fingerprint"`
	Status         *certificateStatus `json:"status"`
}

type certificateStatus struct {
	Issuance string              `json:"issuance"`
	Renewal  string              `json:"renewal"`
	Error    *schema.ActionError `json:"error"`
}

func (p *project) certificateBody(k *certificate) certificateBody {
	out := certificateBody{Certificate: schema.Certificate{
		ID: k.id, Name: k.name, Labels: cloneLabels(k.labels), Type: k.kind, Created: k.created,
		DomainNames: k.domains, UsedBy: p.usersOf(k),
	}}
	if k.content != nil {
		out.PEM, out.Fingerprint = &k.content.chain, &k.content.fingerprint
		out.NotValidBefore, out.NotValidAfter = &k.content.notBefore, &k.content.notAfter
	}
	if k.kind == certificateManaged {
		out.Status = &certificateStatus{Issuance: k.issuance, Renewal: renewalUnavailable, Error: k.failure}
		if k.issuance == issuanceCompleted {
			out.Status.Renewal = renewalScheduled
		}
	}
	return out
}

func (p *project) usersOf(k *certificate) []schema.CertificateUsedByRef {
	out := []schema.CertificateUsedByRef{}
	for _, lb := range p.loadBalancers.rows {
		if lb.certificates(nil)[k.id] {
			out = append(out, schema.CertificateUsedByRef{ID: lb.id, Type: kindLoadBalancer})
		}
	}
	return out
}

// certificates returns the IDs that the services refer to, except those of the service without.
func (lb *loadBalancer) certificates(without *service) map[int64]bool {
	ids := map[int64]bool{}
	for _, s := range lb.services {
		if s == without || s.HTTP == nil {
			continue
		}
		for _, id := range s.HTTP.Certificates {
			ids[id] = true
		}
	}
	return ids
}

func (p *project) checkCertificates(lb *loadBalancer, s, replaced *service) error {
	if s.HTTP == nil || len(s.HTTP.Certificates) == 0 {
		return nil
	}
	if s.Protocol != protocolHTTPS {
		return errInvalid("http.certificates", "is only available for the protocol https")
	}
	all := lb.certificates(replaced)
	for _, id := range s.HTTP.Certificates {
		if _, err := must(&p.certificates, kindCertificate, id); err != nil {
			return err
		}
		all[id] = true
	}
	if len(all) > lb.size.MaxAssignedCertificates {
		return errLimit("load_balancer_assigned_certificate_limit", lb.size.MaxAssignedCertificates)
	}
	return nil
}
