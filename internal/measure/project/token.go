package project

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/measure"
)

// tokenReadonly is the code of a change with a token that may only read.
const tokenReadonly hcloud.ErrorCode = "token_readonly"

// CheckToken finds out whether the token is one, and whether it may change things, before
// anything is made. For the latter it asks for a network that can't be: one whose range is none.
func (p *Project) CheckToken(ctx context.Context) error {
	r, err := p.client.NewRequest(ctx, http.MethodGet, "/locations?per_page=1", nil)
	if err != nil {
		return err
	}
	response, err := p.client.Do(r, nil)
	if err != nil && response != nil && response.Response != nil &&
		response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("there is no API at the endpoint: its path is part of it, as in %s: %w",
			hcloud.Endpoint, err)
	}
	if hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) {
		return fmt.Errorf("the API refuses the token: "+
			"take one of the project, with permission to read and write: %w", err)
	}
	if err != nil {
		return fmt.Errorf("asking the API: %w", err)
	}
	if p.plan.Things == (measure.Things{}) {
		return nil // nothing will be made
	}
	return p.mayWrite(ctx)
}

// Unauthorized reports whether the API takes the token for none.
func Unauthorized(err error) bool { return hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) }

func (p *Project) mayWrite(ctx context.Context) error {
	err := p.makeNothing(ctx)
	var refused hcloud.Error
	switch {
	case err == nil:
		return errors.New("the API has made a network whose address range is none: " +
			"this isn't the API that is to be measured, or it has changed")
	case hcloud.IsError(err, tokenReadonly, hcloud.ErrorCodeForbidden):
		return fmt.Errorf("the token may only read: take one with permission to read and write, "+
			"since what is measured is made first: %w", err)
	case errors.As(err, &refused) && refused.Response() != nil &&
		refused.Response().StatusCode == http.StatusUnprocessableEntity:
		return nil
	}
	return fmt.Errorf("trying whether the token may change things: %w", err)
}

// makeNothing asks for a network that can't be.
func (p *Project) makeNothing(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{
		"name": p.Name("nothing"), "labels": p.Labels(), "ip_range": "none",
	})
	if err != nil {
		return err
	}
	r, err := p.client.NewRequest(ctx, http.MethodPost, "/networks", bytes.NewReader(body))
	if err != nil {
		return err
	}
	_, err = p.client.Do(r, nil)
	return err
}
