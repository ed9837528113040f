# SPDX-License-Identifier: BSD-3-Clause
"""moto_server.py - moto's S3 server with a bucket, which checks signatures from then on

Listens on 127.0.0.1:$MOTO_PORT. Prints "ready KEY SECRET" when it does.
"""
import json
import os
import sys
import threading

import boto3
import requests
from moto.server import ThreadedMotoServer

POLICY = {"Version": "2012-10-17",
          "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


def main():
    port = int(os.environ["MOTO_PORT"])
    address = "http://127.0.0.1:%d" % port
    ThreadedMotoServer("127.0.0.1", port).start()
    anyone = {"endpoint_url": address, "region_name": "us-east-1", "aws_access_key_id": "x",
              "aws_secret_access_key": "x"}
    iam = boto3.client("iam", **anyone)
    iam.create_user(UserName="kvarc")
    iam.put_user_policy(UserName="kvarc", PolicyName="s3", PolicyDocument=json.dumps(POLICY))
    key = iam.create_access_key(UserName="kvarc")["AccessKey"]
    boto3.client("s3", **anyone).create_bucket(Bucket="bucket")
    # from here on requests must be signed by a user who may
    requests.post(address + "/moto-api/reset-auth", data=b"0", timeout=10)
    print("ready", key["AccessKeyId"], key["SecretAccessKey"], flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
