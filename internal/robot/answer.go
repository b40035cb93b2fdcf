package robot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxResponse limits a response, in bytes: a list of ten thousand servers needs less.
const maxResponse = 32 << 20

// badResponse is an invalid response.
type badResponse struct{ error }

func (b *badResponse) Unwrap() error { return b.error }

// notTheService is a response that is not from the web service, which replies with JSON.
type notTheService struct{ status int }

func (e *notTheService) Error() string {
	return fmt.Sprintf("the response is %d %s and not the web service's JSON", e.status,
		http.StatusText(e.status))
}

// read reads a response. The outcome of the login doesn't depend on a body that may never end.
func read(resp *http.Response, into any) (outcome, error) {
	if resp.StatusCode == http.StatusUnauthorized {
		return refused,
			&Error{Status: resp.StatusCode, Code: "UNAUTHORIZED", Message: http.StatusText(resp.StatusCode)}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	switch {
	case resp.StatusCode == http.StatusForbidden:
		// Documented for quotas only, but some clients received it for a wrong password.
		refusal := failure(resp.StatusCode, body)
		if !IsCode(refusal, CodeRateLimit) {
			return refused, refusal
		}
		return accepted, refusal
	case resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout:
		return lost, failure(resp.StatusCode, body) // a proxy got no response from the service
	case err != nil:
		return unsent, err
	case resp.StatusCode >= http.StatusMultipleChoices:
		refusal := failure(resp.StatusCode, body)
		if errors.As(refusal, new(*Error)) && resp.StatusCode < http.StatusInternalServerError {
			return accepted, refusal
		}
		return unsent, refusal
	case !json.Valid(body):
		return unsent, &badResponse{errors.New("reading the response: it is not JSON")}
	case string(bytes.TrimSpace(body)) == "null": // decodes into every type without an error
		return accepted, &badResponse{errors.New("reading the response: it is null")}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return accepted, &badResponse{fmt.Errorf("reading the response: %w", err)}
	}
	return accepted, nil
}

func failure(status int, body []byte) error {
	inFront := status == http.StatusBadGateway || status == http.StatusServiceUnavailable ||
		status == http.StatusGatewayTimeout
	if e := readError(status, body); !inFront && e.Code != "" {
		return e
	}
	other := &notTheService{status}
	if status == http.StatusNotFound || status < http.StatusBadRequest {
		return &badResponse{fmt.Errorf("%w; is the endpoint right?", other)}
	}
	return other
}
