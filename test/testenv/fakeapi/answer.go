package fakeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReadBody returns a request's body, which can then be read again.
func ReadBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	body, err := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// Reply encodes a response as the API server does, or an error that has a status. Any other error
// breaks the connection.
func Reply(reply any, err error) (*http.Response, error) {
	code := http.StatusOK
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			return nil, err
		}
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		code, reply = int(s.Code), s
	}
	body, err := json.Marshal(reply)
	if err != nil {
		return nil, err
	}
	return Response(code, io.NopCloser(bytes.NewReader(body))), nil
}

// Response is a response with a JSON body.
func Response(code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: body,
	}
}

// Elapse waits, and reports whether the whole time has passed. It creates no timer for a duration
// of 0: if several goroutines find such a timer expired, Go's race detector crashes in a bubble.
func Elapse(ended <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ended:
		return false
	}
}
